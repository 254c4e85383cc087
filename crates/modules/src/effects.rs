//! What an invocation wants to change. Nothing of it has happened yet.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Changes of one invocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// New values of the local store by name; `None` deletes.
    pub changes: BTreeMap<String, Option<Bytes>>,
    /// Growth of the state in bytes, names included.
    pub state_growth: i64,
    /// Specifications of submitted jobs, as JSON, in order.
    pub jobs: Vec<String>,
    /// Timers by name.
    pub timers: BTreeMap<String, TimerChange>,
    pub log: Vec<LogLine>,
    /// Bytes of log text beyond the limit, which were dropped.
    pub log_bytes_dropped: u64,
}

impl Effects {
    /// Whether nothing has to be stored. Log lines are not stored.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.jobs.is_empty() && self.timers.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimerChange {
    Set { delay_ms: u64, payload: Bytes },
    Cancel,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub level: LogLevel,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}
