//! A directory of rules that lasts as long as its test, and jobs to ask about.

use std::fs;
use std::path::Path;

use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;
use model::verdict::Decision;
use policy::{JobFacts, LoadError, Rules};
use tempfile::TempDir;

/// Noon of a Wednesday.
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

/// Rules for jobs, without the line that names their package.
pub fn job_rules(text: &str) -> Rules {
    load(&[("a.rego", &format!("package outlast.job\n{text}"))]).unwrap()
}

pub fn load(files: &[(&str, &str)]) -> Result<Rules, LoadError> {
    Rules::load(directory(files).path())
}

/// What is wrong with these rules for jobs.
pub fn problem(text: &str) -> String {
    match load(&[("a.rego", &format!("package outlast.job\n{text}"))]) {
        Ok(_) => panic!("nothing is wrong with {text}"),
        Err(error) => error.to_string(),
    }
}

pub fn echo() -> JobSpec {
    JobSpec::new(Run::Echo(EchoRun::default()))
}

pub fn decide(rules: &Rules, spec: &JobSpec) -> Decision {
    rules.decide(&JobFacts::of(spec), NOW)
}
