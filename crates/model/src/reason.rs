//! Reasons for the state of a job, task or workflow.

use minicbor::{Decode, Encode};

use crate::limits;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Stable code of a reason: a number on disk, a text in the API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
        #[cbor(index_only)]
        pub enum ReasonCode {
            $($(#[$doc])* #[n($number)] $name,)*
        }

        impl ReasonCode {
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// Waiting for `not_before`.
    Delayed = 0, "delayed";
    /// The attempt failed; a retry follows after the backoff.
    RetryLater = 1, "retry_later";
    /// The retry budget is used up.
    RetriesExhausted = 2, "retries_exhausted";
    /// The attempt reported an error that no retry can fix.
    Fatal = 3, "fatal";
    /// Too many infrastructure failures: the job itself may be the cause.
    InfrastructureExhausted = 4, "infrastructure_exhausted";
    /// The runner was lost; the job is scheduled again.
    RunnerLost = 5, "runner_lost";
    /// The runner could not run the attempt; the job is scheduled again.
    RunnerTrouble = 6, "runner_trouble";
    DeadlinePassed = 7, "deadline_passed";
    AttemptTimedOut = 8, "attempt_timed_out";
    /// The runner did not report the start in time.
    DispatchTimedOut = 9, "dispatch_timed_out";
    CancelRequested = 10, "cancel_requested";
    QueueCancelled = 11, "queue_cancelled";
    Retracted = 12, "retracted";
    /// Denied by the policy.
    PolicyDenied = 13, "safety_denied";
    /// Rejected by an approver.
    ApprovalRejected = 14, "approval_rejected";
    ApprovalRequired = 15, "approval_required";
    /// Throttled by the policy.
    Throttled = 16, "throttled";
    OutputQuarantined = 17, "output_quarantined";
    Released = 18, "released";
    Rescheduled = 19, "rescheduled";
    NodeAbandoned = 20, "node_abandoned";
    RunnerBusy = 21, "runner_busy";
    /// The node was drained; the job is scheduled again.
    NodeDrained = 22, "node_drained";
    /// The runner did not confirm the stop in time.
    StopOverdue = 23, "stop_overdue";
    /// The policy has changed; the job is evaluated again before it starts.
    PolicyChanged = 24, "policy_changed";
    /// The policy could not be evaluated; a retry follows.
    PolicyUnavailable = 25, "policy_unavailable";
    /// The approval period has ended without an answer.
    ApprovalExpired = 26, "approval_expired";
    /// The topic maps to no pool.
    NoPoolMapping = 27, "no_pool_mapping";
    /// No runner satisfies the requirement.
    NoWorkers = 28, "no_workers";
    /// All runners that satisfy the requirement are overloaded.
    PoolOverloaded = 29, "pool_overloaded";
    /// The tenant's limit is reached.
    TenantLimit = 30, "tenant_limit";
    DispatchFailed = 31, "dispatch_failed";
    /// The result could not be scanned, and its topic withholds such results.
    OutputUnchecked = 32, "output_unchecked";
    OutputRedacted = 33, "output_redacted";
    /// The policy's `max_concurrent` is reached.
    ConcurrencyLimit = 34, "concurrency_limit";
    /// The workflow was cancelled or is rolling back.
    WorkflowStopped = 35, "workflow_stopped";
    /// A dependency has failed.
    UpstreamFailed = 36, "upstream_failed";
    /// A template could not be evaluated.
    TemplateError = 37, "template_error";
    /// The condition is false.
    ConditionFalse = 38, "condition_false";
    /// A switch chose another case.
    NotChosen = 39, "not_chosen";
    /// All dependencies were skipped.
    UpstreamSkipped = 40, "upstream_skipped";
    /// The task exceeded its timeout.
    TaskTimedOut = 41, "task_timed_out";
    /// The task's job has failed.
    JobFailed = 42, "job_failed";
    /// An item of the task has failed.
    ItemFailed = 43, "item_failed";
    /// A task of the workflow has failed.
    TaskFailed = 44, "task_failed";
    /// The workflow exceeded its timeout.
    WorkflowTimedOut = 45, "workflow_timed_out";
    /// The compensation cannot be built from the definition.
    CompensationUnreadable = 46, "compensation_unreadable";
    /// The definition cannot be read.
    DefinitionUnreadable = 47, "definition_unreadable";
    /// Replaced by the next start of its schedule.
    ReplacedBySchedule = 48, "replaced_by_schedule";
    /// The limit of workflows is reached; the sub-workflow was not started.
    TooManyWorkflows = 49, "too_many_workflows";
    /// The lease of an exclusive attempt ran out; the job is scheduled again.
    LeaseExpired = 50, "lease_expired";
}

/// A reason code with an optional message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Reason {
    #[n(0)]
    pub code: ReasonCode,
    #[n(1)]
    pub message: Option<String>,
}

impl Reason {
    pub fn new(code: ReasonCode) -> Self {
        Self { code, message: None }
    }

    pub fn with(code: ReasonCode, message: impl Into<String>) -> Self {
        Self { code, message: Some(cut(message.into())) }
    }
}

/// Truncates a text to [`limits::MESSAGE_BYTES_MAX`].
pub fn cut(mut text: String) -> String {
    if text.len() > limits::MESSAGE_BYTES_MAX {
        let end = (0..=limits::MESSAGE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_truncated_at_a_character_boundary() {
        let text = "é".repeat(limits::MESSAGE_BYTES_MAX);
        assert_eq!(cut(text).len(), limits::MESSAGE_BYTES_MAX);
        let odd = format!("x{}", "é".repeat(limits::MESSAGE_BYTES_MAX));
        assert_eq!(cut(odd).len(), limits::MESSAGE_BYTES_MAX - 1);
    }
}
