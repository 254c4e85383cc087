//! Limits of a module's instances and invocations.

use std::time::Duration;

/// Maximum length of a name in the local store, and of a timer's name, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// Names that one `list` returns.
pub const LIST_NAMES_MAX: u32 = 1000;

/// Jobs that one invocation may submit.
pub const JOBS_MAX: usize = 100;

/// Timers that one invocation may set or cancel.
pub const TIMERS_MAX: usize = 100;

/// Payload of a timer, in bytes.
pub const TIMER_PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Random bytes that one call returns.
pub const RANDOM_BYTES_MAX: usize = 64 << 10;

/// Text that one invocation may log, in bytes. What is beyond is counted.
pub const LOG_BYTES_MAX: usize = 64 << 10;

/// Host resources (streams, timers) that an instance may hold at a time.
pub const HANDLES_MAX: usize = 256;

/// Limits that a manifest may set, within those of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Instructions per invocation, if metered.
    pub fuel: Option<u64>,
    /// Time of one invocation, waiting included.
    pub deadline: Duration,
    /// Memory of an instance.
    pub memory_bytes: u64,
    /// State of a container, names and values.
    pub state_bytes: u64,
    /// A value in the local store.
    pub value_bytes: usize,
    /// Everything that one invocation changes: names, values, job specifications, timers.
    pub effects_bytes: usize,
    pub reply_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: None,
            deadline: Duration::from_secs(10),
            memory_bytes: 64 << 20,
            state_bytes: 1 << 30,
            value_bytes: 1 << 20,
            effects_bytes: 2 << 20,
            reply_bytes: 1 << 20,
        }
    }
}
