//! How the kernel is doing, for people and for metrics.

use model::time::Timestamp;
use model::verdict::PolicyVersion;
use serde::Serialize;

use crate::breaker::{State, Transitions};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelStatus {
    /// `host:port`.
    pub address: String,
    pub tls: bool,
    /// Which rules answer, as the job's history names them. Absent until the kernel has answered once.
    pub policy_version: Option<PolicyVersion>,
    /// The kernel's own word for that.
    pub kernel_version: Option<String>,
    /// Calls that the kernel is busy with.
    pub in_flight: usize,
    /// Calls that wait in line.
    pub waiting: usize,
    /// Checks of jobs, and explanations.
    pub input: GateStatus,
    /// Checks of results.
    pub output: GateStatus,
}

/// One breaker and what went through it. The counts are since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateStatus {
    pub state: State,
    /// While closed: so many calls in a row have failed.
    pub failures_in_a_row: u32,
    /// While open.
    pub opened_at: Option<Timestamp>,
    pub open_until: Option<Timestamp>,
    /// Calls that the kernel was asked.
    pub calls: u64,
    /// Of those, without an answer.
    pub failures: u64,
    /// Of the failures, those that took too long.
    pub timeouts: u64,
    /// Answers that made no sense, and so let nothing pass.
    pub denied_nonsense: u64,
    /// Questions that the kernel has refused as INVALID_ARGUMENT, which lets nothing pass either.
    pub denied_refused: u64,
    /// Jobs that were too large to ask about.
    pub denied_too_large: u64,
    /// Not asked because the breaker was open.
    pub open_rejections: u64,
    /// Not asked because too many others were.
    pub busy_rejections: u64,
    /// Answers from before the breaker's last change of state, which it did not count.
    pub late_reports: u64,
    pub transitions: Transitions,
    pub last_error: Option<LastError>,
}

/// The newest failure or nonsense.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    pub at: Timestamp,
    pub message: String,
}
