//! The policy in force: rules with a cache, reloaded when their files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::time::{Millis, Timestamp};
use model::verdict::{Decision, PolicyVersion};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use crate::cache::Cache;
use crate::error::LoadError;
use crate::facts::{JobFacts, OutputFacts};
use crate::files::Fingerprint;
use crate::rules::{OutputCheck, Rules};

/// Policy of a node. Thread-safe.
pub struct Policy {
    directory: PathBuf,
    cache: Cache,
    current: RwLock<Current>,
    /// Fingerprint of the files at the last attempt to load them.
    fingerprint: Mutex<Option<Fingerprint>>,
}

struct Current {
    rules: Arc<Rules>,
    loaded_at: Millis,
    error: Option<String>,
}

/// Result of a reload.
#[derive(Debug)]
pub enum Reloaded {
    Unchanged,
    Changed(PolicyVersion),
    /// The rules in force stay.
    Refused(LoadError),
}

/// Status for operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyStatus {
    pub version: PolicyVersion,
    pub directory: PathBuf,
    pub files: Vec<String>,
    pub loaded_at: Timestamp,
    /// Why the current files are not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub cacheable: bool,
    /// Paths of `input` that the rules for jobs read.
    pub reads: Vec<String>,
    pub has_output_rules: bool,
}

impl Policy {
    /// Loads the rules in a directory.
    pub fn open(directory: &Path, cache: Cache, now: Millis) -> Result<Self, LoadError> {
        // Before loading: the next check then detects a change in between.
        let fingerprint = Fingerprint::of(directory)?;
        let rules = Arc::new(Rules::load(directory)?);
        let current = RwLock::new(Current { rules, loaded_at: now, error: None });
        Ok(Self { directory: directory.to_path_buf(), cache, current, fingerprint: Mutex::new(Some(fingerprint)) })
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.current.read().rules)
    }

    /// Cached decision about a job. Much faster than an evaluation.
    pub fn cached(&self, facts: &JobFacts<'_>, now: Millis) -> Option<Decision> {
        let rules = self.rules();
        let answer = self.cache.get(&rules.key(facts, now)?)?;
        Some(rules.decision(answer, now))
    }

    /// Decides about a job, from the cache if possible.
    pub fn decide(&self, facts: &JobFacts<'_>, now: Millis) -> Decision {
        let rules = self.rules();
        let key = rules.key(facts, now);
        if let Some(answer) = key.and_then(|key| self.cache.get(&key)) {
            return rules.decision(answer, now);
        }
        let answer = rules.evaluate(facts, now, rules.job_extent()).answer;
        if let Some(key) = key.filter(|_| Rules::is_valid(&answer)) {
            self.cache.put(key, answer.clone());
        }
        rules.decision(answer, now)
    }

    /// Decides about a result.
    pub fn decide_output(&self, facts: &OutputFacts<'_>, now: Millis) -> OutputCheck {
        self.rules().decide_output(facts, now)
    }

    /// Whether the files changed since the last attempt to load them. Compares names, sizes and times only: cheap
    /// enough for every second.
    pub fn needs_reload(&self) -> bool {
        *self.fingerprint.lock() != Fingerprint::of(&self.directory).ok()
    }

    /// Loads the rules again. On an error the old rules stay in force, and [`Policy::status`] shows it.
    pub fn reload(&self, now: Millis) -> Reloaded {
        // The lock serialises reloads: a slow one must not replace newer rules.
        let mut fingerprint = self.fingerprint.lock();
        *fingerprint = Fingerprint::of(&self.directory).ok();
        let loaded = Rules::load(&self.directory);
        let mut current = self.current.write();
        match loaded {
            Ok(rules) => {
                current.error = None;
                if rules.version() == current.rules.version() {
                    return Reloaded::Unchanged;
                }
                let version = rules.version();
                current.rules = Arc::new(rules);
                current.loaded_at = now;
                // Keys contain the version: old entries are not wrong, only useless.
                self.cache.clear();
                Reloaded::Changed(version)
            }
            Err(error) => {
                current.error = Some(error.to_string());
                Reloaded::Refused(error)
            }
        }
    }

    pub fn status(&self) -> PolicyStatus {
        let current = self.current.read();
        PolicyStatus {
            version: current.rules.version(),
            directory: self.directory.clone(),
            files: current.rules.files().to_vec(),
            loaded_at: Timestamp(current.loaded_at),
            error: current.error.clone(),
            cacheable: current.rules.is_cacheable(),
            reads: current.rules.reads(),
            has_output_rules: current.rules.has_output_rules(),
        }
    }
}
