//! The rules in force: asked, cached, and exchanged when their files change.

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
use crate::rules::{OutputRuling, Rules};

/// The policy of a node. All of it may be called from any thread.
pub struct Policy {
    directory: PathBuf,
    cache: Cache,
    current: RwLock<Current>,
    /// What the files looked like when they were last loaded, or when that was last tried.
    seen: Mutex<Option<Fingerprint>>,
}

struct Current {
    rules: Arc<Rules>,
    loaded_at: Millis,
    error: Option<String>,
}

/// What came of a look at the files.
#[derive(Debug)]
pub enum Reloaded {
    Unchanged,
    Changed(PolicyVersion),
    /// The rules in force stay as they are.
    Refused(LoadError),
}

/// The policy as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyStatus {
    pub version: PolicyVersion,
    pub directory: PathBuf,
    pub files: Vec<String>,
    pub loaded_at: Timestamp,
    /// Why what is in the directory now is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub cacheable: bool,
    /// The parts of their input that the rules for jobs read.
    pub reads: Vec<String>,
    pub has_output_rules: bool,
}

impl Policy {
    /// Loads the rules in a directory, for the first time.
    pub fn open(directory: &Path, cache: Cache, now: Millis) -> Result<Self, LoadError> {
        // Looked at first: a change in between is then found by the next look.
        let seen = Fingerprint::of(directory)?;
        let rules = Arc::new(Rules::load(directory)?);
        let current = RwLock::new(Current { rules, loaded_at: now, error: None });
        Ok(Self { directory: directory.to_path_buf(), cache, current, seen: Mutex::new(Some(seen)) })
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.current.read().rules)
    }

    /// The answer about a job, if one is known already. Much faster than asking.
    pub fn cached(&self, facts: &JobFacts<'_>, now: Millis) -> Option<Decision> {
        let rules = self.rules();
        let answer = self.cache.get(&rules.key(facts, now)?)?;
        Some(rules.decision(answer, now))
    }

    /// The answer about a job, remembered for the next like it.
    pub fn decide(&self, facts: &JobFacts<'_>, now: Millis) -> Decision {
        let rules = self.rules();
        let key = rules.key(facts, now);
        if let Some(answer) = key.and_then(|key| self.cache.get(&key)) {
            return rules.decision(answer, now);
        }
        let answer = rules.hear(facts, now, rules.job_extent()).answer;
        if let Some(key) = key.filter(|_| Rules::is_sound(&answer)) {
            self.cache.put(key, answer.clone());
        }
        rules.decision(answer, now)
    }

    /// The answer about a result.
    pub fn decide_output(&self, facts: &OutputFacts<'_>, now: Millis) -> OutputRuling {
        self.rules().decide_output(facts, now)
    }

    /// Whether the files look other than when they were last loaded. Reads names, sizes and times only, so that it can
    /// be asked every second.
    pub fn needs_reload(&self) -> bool {
        *self.seen.lock() != Fingerprint::of(&self.directory).ok()
    }

    /// Loads the rules anew. What is wrong with them is kept for [`Policy::status`], and the old ones stay in force.
    pub fn reload(&self, now: Millis) -> Reloaded {
        // One at a time: the slower of two must not put its older rules over the newer ones.
        let mut seen = self.seen.lock();
        *seen = Fingerprint::of(&self.directory).ok();
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
                // Keys carry the version, so what is cached is not wrong, only useless.
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
