//! Validation of a manifest: it must unpack to a directory without affecting anything outside it.

use std::collections::{BTreeMap, BTreeSet};

use model::limits::{ARGUMENT_BYTES_MAX, COMMAND_ARGS_MAX, COMMAND_BYTES_MAX, ENV_VARS_MAX, NAME_BYTES_MAX};

use super::manifest::{Function, Manifest, ManifestEntry, Program};
use crate::limits::{BUNDLE_FILES_MAX, BUNDLE_FUNCTIONS_MAX};
use crate::paths::link_stays_inside;
use crate::{Error, safe_relative};

impl Manifest {
    /// Reports the first problem.
    pub fn validate(&self, bytes_max: u64) -> Result<(), Error> {
        check_name("the name", &self.name)?;
        check_name("the version", &self.version)?;
        if self.files.len() > BUNDLE_FILES_MAX {
            return Err(Error::TooMany { what: "files in a bundle", limit: BUNDLE_FILES_MAX });
        }
        if self.bytes() > bytes_max {
            return Err(Error::TooLarge { what: "a bundle".to_owned(), bytes: self.bytes(), limit: bytes_max });
        }
        check_files(&self.files)?;
        check_env(&self.env)?;
        if self.functions.len() > BUNDLE_FUNCTIONS_MAX {
            return Err(Error::TooMany { what: "functions in a bundle", limit: BUNDLE_FUNCTIONS_MAX });
        }
        let mut seen = BTreeSet::new();
        for function in &self.functions {
            self.check_function(function)?;
            if !seen.insert((&function.name, &function.version)) {
                let Function { name, version, .. } = function;
                return Err(Error::bad_manifest(format!(
                    "the function `{name}` is defined twice in version `{version}`"
                )));
            }
        }
        Ok(())
    }

    fn check_function(&self, function: &Function) -> Result<(), Error> {
        check_name("the name of a function", &function.name)?;
        check_name("the version of a function", &function.version)?;
        let wrong = |why: String| Err(Error::bad_manifest(format!("the function `{}` {why}", function.name)));
        if function.command.len() > COMMAND_ARGS_MAX {
            return wrong(format!("has more than {COMMAND_ARGS_MAX} arguments"));
        }
        if function.command.iter().any(|argument| argument.contains('\0') || argument.len() > ARGUMENT_BYTES_MAX) {
            return wrong(format!("has an argument with a NUL byte, or of more than {ARGUMENT_BYTES_MAX} bytes"));
        }
        let bytes: usize = function.command.iter().map(|argument| argument.len() + 1).sum();
        if bytes + env_bytes(&self.env) > COMMAND_BYTES_MAX {
            return wrong(format!("and its environment have more than {COMMAND_BYTES_MAX} bytes"));
        }
        let path = match function.program() {
            None => return wrong("has no command".to_owned()),
            Some(Program::InPath("")) => return wrong("has an empty program".to_owned()),
            Some(Program::InPath(_)) => return Ok(()),
            Some(Program::Bundled(path)) => path,
        };
        safe_relative(path)?;
        match self.files.get(path) {
            Some(ManifestEntry::File { executable: true, .. } | ManifestEntry::Link { .. }) => Ok(()),
            Some(ManifestEntry::File { executable: false, .. }) => {
                wrong(format!("starts `{path}`, which is not executable. Run `chmod +x` on it"))
            }
            None => wrong(format!("starts `{path}`, which is not in the bundle")),
        }
    }
}

fn check_files(files: &BTreeMap<String, ManifestEntry>) -> Result<(), Error> {
    for (path, entry) in files {
        safe_relative(path)?;
        if let ManifestEntry::Link { target } = entry {
            link_stays_inside(path, target)?;
        }
        // A path with entries below it is a directory. It must not be a file or link: unpacking would write through a
        // link.
        for (slash, _) in path.match_indices('/') {
            if files.contains_key(&path[..slash]) {
                return Err(Error::bad_path(path, format!("`{}` is a file, not a directory", &path[..slash])));
            }
        }
    }
    Ok(())
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), Error> {
    if env.len() > ENV_VARS_MAX {
        return Err(Error::TooMany { what: "variables in a bundle", limit: ENV_VARS_MAX });
    }
    for (variable, value) in env {
        if variable.is_empty() || variable.contains(['=', '\0']) || value.contains('\0') {
            return Err(Error::bad_manifest(format!("the variable `{variable}` cannot be part of an environment")));
        }
        if variable.len() + 1 + value.len() > ARGUMENT_BYTES_MAX {
            let shown: String = variable.chars().take(100).collect();
            let why = format!("the variable `{shown}` and its value have more than {ARGUMENT_BYTES_MAX} bytes");
            return Err(Error::bad_manifest(why));
        }
    }
    Ok(())
}

/// Size as the kernel counts it, with a NUL byte after each variable.
fn env_bytes(env: &BTreeMap<String, String>) -> usize {
    env.iter().map(|(variable, value)| variable.len() + value.len() + 2).sum()
}

fn check_name(what: &str, text: &str) -> Result<(), Error> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(Error::bad_manifest(format!("{what} has {} bytes; 1 to {NAME_BYTES_MAX} are allowed", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::bad_manifest(format!("{what} has control characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::blob::BlobId;

    use super::*;

    const BYTES_MAX: u64 = 1 << 20;

    fn file(bytes: u64) -> ManifestEntry {
        ManifestEntry::File { blob: BlobId::of(b"x"), bytes, executable: true }
    }

    fn link(target: &str) -> ManifestEntry {
        ManifestEntry::Link { target: target.to_owned() }
    }

    fn with_files<const N: usize>(files: [(&str, ManifestEntry); N]) -> Manifest {
        Manifest {
            name: "n".to_owned(),
            version: "1".to_owned(),
            files: files.map(|(path, entry)| (path.to_owned(), entry)).into(),
            env: BTreeMap::new(),
            functions: Vec::new(),
        }
    }

    fn refusal(manifest: &Manifest) -> String {
        manifest.validate(BYTES_MAX).unwrap_err().to_string()
    }

    // FEATURES: C10
    #[test]
    fn paths_that_leave_the_bundle_are_refused() {
        for path in ["/etc/passwd", "../x", "a/../../x", "", "a//b", "/dev/sda", "a\0"] {
            assert!(with_files([(path, file(1))]).validate(BYTES_MAX).is_err(), "{path:?}");
        }
        for target in ["/etc", "..", "../../x", "a/../../x"] {
            assert!(with_files([("l", link(target))]).validate(BYTES_MAX).is_err(), "{target:?}");
        }
        assert!(with_files([("d/l", link("../x")), ("x", file(1))]).validate(BYTES_MAX).is_ok());
    }

    #[test]
    fn nothing_can_be_written_through_a_link_or_a_file() {
        assert!(refusal(&with_files([("a", link("b")), ("a/x", file(1))])).contains("not a directory"));
        // `a-` sorts between the two.
        assert!(
            refusal(&with_files([("a", file(1)), ("a-", file(1)), ("a/b/x", file(1))])).contains("not a directory")
        );
    }

    #[test]
    fn bundles_are_accepted_up_to_the_limits() {
        assert!(with_files([("a", file(BYTES_MAX))]).validate(BYTES_MAX).is_ok());
        assert!(refusal(&with_files([("a", file(BYTES_MAX)), ("b", file(1))])).contains("too large"));
        assert!(refusal(&with_files([("a", file(u64::MAX)), ("b", file(2))])).contains("too large"));
        let mut many = with_files([]);
        many.files = (0..BUNDLE_FILES_MAX).map(|number| (number.to_string(), file(0))).collect();
        assert!(many.validate(BYTES_MAX).is_ok());
        many.files.insert("more".to_owned(), file(0));
        assert!(refusal(&many).contains("too many files"));
        let mut functions = with_files([]);
        let function = |number: usize| Function {
            name: number.to_string(),
            version: "1".to_owned(),
            command: vec!["true".to_owned()],
        };
        functions.functions = (0..BUNDLE_FUNCTIONS_MAX).map(function).collect();
        assert!(functions.validate(BYTES_MAX).is_ok());
        functions.functions.push(function(BUNDLE_FUNCTIONS_MAX));
        assert!(refusal(&functions).contains("too many functions"));
    }

    #[test]
    fn functions_start_files_of_the_bundle() {
        let with = |command: &[&str]| {
            let mut manifest = with_files([("bin/run", file(1)), ("data", file(1))]);
            manifest
                .files
                .insert("data".to_owned(), ManifestEntry::File { blob: BlobId::of(b"y"), bytes: 1, executable: false });
            let command = command.iter().map(ToString::to_string).collect();
            manifest.functions.push(Function { name: "f".to_owned(), version: "1".to_owned(), command });
            manifest
        };
        assert!(with(&["bin/run", "--fast"]).validate(BYTES_MAX).is_ok());
        assert!(with(&["./bin/run"]).validate(BYTES_MAX).is_ok());
        assert!(with(&["python3", "main.py"]).validate(BYTES_MAX).is_ok());
        assert!(refusal(&with(&["bin/other"])).contains("not in the bundle"));
        assert!(refusal(&with(&["./data"])).contains("not executable"));
        assert!(refusal(&with(&["/bin/sh"])).contains("absolute"));
        assert!(refusal(&with(&[])).contains("no command"));
        let mut twice = with(&["true"]);
        twice.functions.push(twice.functions[0].clone());
        assert!(refusal(&twice).contains("twice"));
    }

    #[test]
    fn invalid_variables_are_refused() {
        let mut manifest = with_files([]);
        manifest.env.insert("A".to_owned(), "1=2".to_owned());
        assert!(manifest.validate(BYTES_MAX).is_ok());
        manifest.env.insert("B=C".to_owned(), String::new());
        assert!(refusal(&manifest).contains("B=C"));
    }

    #[test]
    fn commands_and_environments_are_limited_to_what_the_kernel_accepts() {
        let with = |argument: usize, value: usize| {
            let mut manifest = with_files([]);
            manifest.env.insert("A".to_owned(), "v".repeat(value));
            let command = std::iter::once("true".to_owned()).chain(vec!["x".repeat(argument); 8]).collect();
            manifest.functions.push(Function { name: "f".to_owned(), version: "1".to_owned(), command });
            manifest
        };
        let most = ARGUMENT_BYTES_MAX;
        assert!(with(most, 0).validate(BYTES_MAX).is_err(), "exceeds the total of command and environment");
        assert!(with(most - 1, 0).validate(BYTES_MAX).is_ok());
        assert!(refusal(&with(most + 1, 0)).contains("argument"));
        assert!(with(1, most - 2).validate(BYTES_MAX).is_ok());
        assert!(refusal(&with(1, most - 1)).contains("variable"));
        let exact = COMMAND_BYTES_MAX - "true ".len() - 8 * most - "A=.".len();
        assert!(with(most - 1, exact).validate(BYTES_MAX).is_ok());
        assert!(refusal(&with(most - 1, exact + 1)).contains("environment"));
    }
}
