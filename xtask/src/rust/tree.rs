//! The module tree: the files cargo compiles and their module paths, from the `mod` declarations of each target.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::outline::{Declaration, outline};
use crate::cargo::Target;

/// A file as a module of one target. A file shared by two targets is two modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    pub file: PathBuf,
    /// Path from the crate's name, as in test names: `journal::segment::tests`.
    pub path: Vec<String>,
}

/// All modules of all targets. `read` returns the text of a file, if it exists.
pub fn modules(targets: &[Target], read: &dyn Fn(&Path) -> Option<String>) -> Vec<Module> {
    let mut found = Vec::new();
    for target in targets {
        let mut seen = BTreeSet::new();
        let root = std::iter::once(target.crate_name.clone()).chain(target.own_name.clone()).collect();
        let directory = target.source.parent().unwrap_or(Path::new("")).to_path_buf();
        // Stack of modules to read, each with the directory of its child modules.
        let mut open = vec![(Module { file: target.source.clone(), path: root }, directory)];
        while let Some((module, directory)) = open.pop() {
            let Some(source) = read(&module.file) else { continue };
            if !seen.insert(module.file.clone()) {
                continue;
            }
            for included in included_files(&source, &module.file) {
                open.push((Module { file: included, path: module.path.clone() }, directory.clone()));
            }
            for declaration in outline(&source).declarations {
                if let Some((file, below)) = resolve(&declaration, &module.file, &directory, read) {
                    let names = declaration.modules.into_iter().chain([declaration.name]);
                    let path = module.path.iter().cloned().chain(names).collect();
                    open.push((Module { file, path }, below));
                }
            }
            found.push(module);
        }
    }
    found
}

/// The file of a declaration, and the directory of its child modules.
fn resolve(
    declaration: &Declaration,
    file: &Path,
    directory: &Path,
    read: &dyn Fn(&Path) -> Option<String>,
) -> Option<(PathBuf, PathBuf)> {
    let inside: PathBuf = declaration.modules.iter().collect();
    if let Some(path) = &declaration.path {
        let base = if declaration.modules.is_empty() { file.parent()?.to_path_buf() } else { directory.join(inside) };
        let named = normalise(&base.join(path));
        let below = named.parent()?.to_path_buf();
        return Some((named, below));
    }
    let below = directory.join(inside).join(&declaration.name);
    let candidates = [below.with_extension("rs"), below.join("mod.rs")];
    let file = candidates.into_iter().find(|candidate| read(candidate).is_some())?;
    Some((file, below))
}

/// Files included with `include!("…")`.
fn included_files(source: &str, file: &Path) -> Vec<PathBuf> {
    let directory = file.parent().unwrap_or(Path::new(""));
    let literals = source.split("include!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    literals.map(|name| normalise(&directory.join(name))).collect()
}

/// Resolves `.` and `..` without access to the file system.
pub fn normalise(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            Component::ParentDir | Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                normal.push(component);
            }
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_followed_through_files_and_directories() {
        let files = [
            ("a/src/lib.rs", "mod one; mod inline { mod two; }"),
            ("a/src/one.rs", "mod deep;"),
            ("a/src/one/deep.rs", ""),
            ("a/src/inline/two/mod.rs", "mod three;"),
            ("a/src/inline/two/three.rs", ""),
            ("a/src/dead.rs", ""),
            ("a/tests/scenario.rs", "#[path = \"../fixtures/shared.rs\"] mod shared;"),
            ("a/fixtures/shared.rs", ""),
        ];
        let read = |wanted: &Path| files.iter().find(|(name, _)| Path::new(name) == wanted).map(|f| f.1.to_owned());
        let target = |source: &str, own_name: Option<&str>| Target {
            crate_name: "a".into(),
            own_name: own_name.map(Into::into),
            source: source.into(),
        };
        let targets = [target("a/src/lib.rs", None), target("a/tests/scenario.rs", Some("scenario"))];
        let mut found: Vec<_> =
            modules(&targets, &read).into_iter().map(|m| (m.file.display().to_string(), m.path.join("::"))).collect();
        found.sort();
        let wanted = [
            ("a/fixtures/shared.rs", "a::scenario::shared"),
            ("a/src/inline/two/mod.rs", "a::inline::two"),
            ("a/src/inline/two/three.rs", "a::inline::two::three"),
            ("a/src/lib.rs", "a"),
            ("a/src/one.rs", "a::one"),
            ("a/src/one/deep.rs", "a::one::deep"),
            ("a/tests/scenario.rs", "a::scenario"),
        ];
        assert_eq!(found, wanted.map(|(file, path)| (file.to_owned(), path.to_owned())));
    }

    #[test]
    fn paths_are_normalised() {
        assert_eq!(normalise(Path::new("a/./b/../c")), Path::new("a/c"));
        assert_eq!(normalise(Path::new("a/../../c")), Path::new("../c"));
    }
}
