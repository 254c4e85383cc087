//! Status of the client, for the API and for metrics.

use model::time::Timestamp;
use model::verdict::PolicyVersion;
use serde::Serialize;

use crate::breaker::{State, Transitions};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyServiceStatus {
    /// `host:port`.
    pub address: String,
    pub tls: bool,
    /// Policy version, as recorded with decisions. Absent until the service has answered once.
    pub policy_version: Option<PolicyVersion>,
    /// The `policy_version` of its last answer.
    #[serde(rename = "kernel_version")]
    pub service_version: Option<String>,
    pub in_flight: usize,
    /// Calls that wait for admission.
    pub waiting: usize,
    /// Checks of jobs, and explanations.
    pub input: BreakerStatus,
    /// Checks of results.
    pub output: BreakerStatus,
}

/// One breaker and its calls. Counters start with the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BreakerStatus {
    pub state: State,
    /// Consecutive failures. 0 unless closed.
    pub failures_in_a_row: u32,
    /// Set while open.
    pub opened_at: Option<Timestamp>,
    /// Set while open.
    pub open_until: Option<Timestamp>,
    /// Calls made.
    pub calls: u64,
    /// Calls without an answer.
    pub failures: u64,
    /// Failures by timeout.
    pub timeouts: u64,
    /// Denials because of an invalid answer.
    #[serde(rename = "denied_nonsense")]
    pub denied_invalid: u64,
    /// Denials because the service answered INVALID_ARGUMENT.
    pub denied_refused: u64,
    /// Denials because the job was too large to send.
    pub denied_too_large: u64,
    /// Calls rejected because the breaker was open.
    pub open_rejections: u64,
    /// Calls rejected because too many were in flight and waiting.
    pub busy_rejections: u64,
    /// Reports that the breaker ignored: their calls began before its last change of state.
    pub late_reports: u64,
    pub transitions: Transitions,
    pub last_error: Option<LastError>,
}

/// The last failure or invalid answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    pub at: Timestamp,
    pub message: String,
}
