//! Temporary directories of rules, and jobs.

use std::fs;
use std::path::Path;

use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;
use model::verdict::Decision;
use policy::{JobFacts, LoadError, Rules};
use tempfile::TempDir;

/// A Wednesday noon.
pub const NOW: Millis = Millis(1_767_787_200_000);

/// A directory with these files.
pub fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(directory.path(), name, text.as_bytes());
    }
    directory
}

pub fn write(directory: &Path, name: &str, content: &[u8]) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Loads rules for jobs. `text` has no package line.
pub fn job_rules(text: &str) -> Rules {
    load(&[("a.rego", &format!("package outlast.job\n{text}"))]).unwrap()
}

pub fn load(files: &[(&str, &str)]) -> Result<Rules, LoadError> {
    Rules::load(directory(files).path())
}

/// The load error of rules for jobs.
pub fn load_error(text: &str) -> String {
    match load(&[("a.rego", &format!("package outlast.job\n{text}"))]) {
        Ok(_) => panic!("loaded without an error: {text}"),
        Err(error) => error.to_string(),
    }
}

pub fn echo() -> JobSpec {
    JobSpec::new(Run::Echo(EchoRun::default()))
}

pub fn decide(rules: &Rules, spec: &JobSpec) -> Decision {
    rules.decide(&JobFacts::of(spec), NOW)
}
