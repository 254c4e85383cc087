//! Jobs that run until the test lets them end.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use model::json::Json;
use serde_json::{Value, json};

use super::wait_for;

/// A gate: its jobs wait at it and end when it is opened. Each attempt leaves a file with its process id.
pub struct Gate {
    /// A FIFO: opening it for reading blocks while nobody has it open for writing.
    fifo: PathBuf,
    directory: PathBuf,
    opened: Option<File>,
}

impl Gate {
    /// `name` distinguishes the gates of a test.
    pub fn new(directory: &Path, name: &str) -> Self {
        let directory = directory.join(name);
        std::fs::create_dir(&directory).unwrap();
        let fifo = directory.join("gate");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        Self { fifo, directory, opened: None }
    }

    /// Lets all attempts end, those that run and those to come.
    pub fn open(&mut self) {
        // Open in both directions: never blocks.
        self.opened = Some(File::options().read(true).write(true).open(&self.fifo).unwrap());
    }

    /// A job that waits at the gate and returns its name and attempt.
    pub fn job(&self, name: &str, labels: &BTreeMap<&str, String>) -> Value {
        let (directory, fifo) = (self.directory.display(), self.fifo.display());
        let script = format!(
            "echo $$ > {directory}/{name}.$OUTLAST_ATTEMPT.new; \
             mv {directory}/{name}.$OUTLAST_ATTEMPT.new {directory}/{name}.$OUTLAST_ATTEMPT; \
             : < {fifo}; echo {name}.$OUTLAST_ATTEMPT"
        );
        json!({
            "run": {"process": {"command": ["sh", "-c", script]}},
            "sandbox": "none",
            "labels": labels,
            "idempotency_key": name,
        })
    }

    /// The result of an attempt.
    pub fn result(name: &str, attempt: u64) -> Json {
        Json::of(&format!("{name}.{attempt}\n"))
    }

    /// Process id of an attempt, once it has started.
    pub fn wait_for_attempt(&self, name: &str, attempt: u64) -> u32 {
        let file = self.directory.join(format!("{name}.{attempt}"));
        wait_for(&format!("attempt {attempt} of {name} starts"), || {
            std::fs::read_to_string(&file).ok().map(|text| text.trim().parse().unwrap())
        })
    }

    /// The same for several jobs.
    pub fn wait_for_attempts<const N: usize>(&self, names: [&str; N], attempt: u64) -> [u32; N] {
        names.map(|name| self.wait_for_attempt(name, attempt))
    }
}
