//! Why a job is in the state it is in.

use minicbor::{Decode, Encode};

use crate::limits;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// A stable name for a reason; on disk by number, in the API by text.
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
    /// It waits for `not_before`.
    Delayed = 0, "delayed";
    /// It failed and waits for its next try.
    RetryLater = 1, "retry_later";
    /// All its retries failed.
    RetriesExhausted = 2, "retries_exhausted";
    /// It said that trying again is pointless.
    Fatal = 3, "fatal";
    /// Its runner went away too often: the job itself is the suspect.
    InfrastructureExhausted = 4, "infrastructure_exhausted";
    /// Its runner went away; it is placed again.
    RunnerLost = 5, "runner_lost";
    /// It could not be run there; it is placed again.
    RunnerTrouble = 6, "runner_trouble";
    DeadlinePassed = 7, "deadline_passed";
    AttemptTimedOut = 8, "attempt_timed_out";
    /// Its runner took it and never said that it started.
    DispatchTimedOut = 9, "dispatch_timed_out";
    CancelRequested = 10, "cancel_requested";
    QueueCancelled = 11, "queue_cancelled";
    Retracted = 12, "retracted";
    /// The policy said no.
    PolicyDenied = 13, "safety_denied";
    /// An approver said no.
    ApprovalRejected = 14, "approval_rejected";
    ApprovalRequired = 15, "approval_required";
    /// The policy said: not now.
    Throttled = 16, "throttled";
    OutputQuarantined = 17, "output_quarantined";
    Released = 18, "released";
    Rescheduled = 19, "rescheduled";
    NodeAbandoned = 20, "node_abandoned";
    RunnerBusy = 21, "runner_busy";
    /// Its node was stopped in an orderly way; it is placed again.
    NodeDrained = 22, "node_drained";
    /// Asked to stop, its runner never said that it had.
    StopOverdue = 23, "stop_overdue";
    /// There is a new policy; it is asked about the job again before it is started.
    PolicyChanged = 24, "policy_changed";
    /// The policy could not be asked; it will be.
    PolicyUnavailable = 25, "policy_unavailable";
    /// Nobody approved it in time.
    ApprovalExpired = 26, "approval_expired";
    /// Its topic is not given to any pool.
    NoPoolMapping = 27, "no_pool_mapping";
    /// No runner there is could take it.
    NoWorkers = 28, "no_workers";
    /// All runners that could take it are overloaded.
    PoolOverloaded = 29, "pool_overloaded";
    /// Its tenant has all it may have.
    TenantLimit = 30, "tenant_limit";
    DispatchFailed = 31, "dispatch_failed";
    /// Its result could not be looked at, and its topic does not let such results out.
    OutputUnchecked = 32, "output_unchecked";
    OutputRedacted = 33, "output_redacted";
    /// All that the policy lets run of its kind at once are running.
    ConcurrencyLimit = 34, "concurrency_limit";
    /// Its workflow was cancelled, or is being undone.
    WorkflowStopped = 35, "workflow_stopped";
    /// Something that it needs has failed.
    UpstreamFailed = 36, "upstream_failed";
    /// A template of it has no value.
    TemplateError = 37, "template_error";
    /// Its condition did not hold.
    ConditionFalse = 38, "condition_false";
    /// A switch chose other tasks.
    NotChosen = 39, "not_chosen";
    /// Everything that it needs was skipped.
    UpstreamSkipped = 40, "upstream_skipped";
    /// It took longer than it may.
    TaskTimedOut = 41, "task_timed_out";
    /// Its job has failed.
    JobFailed = 42, "job_failed";
    /// One of its items has failed.
    ItemFailed = 43, "item_failed";
    /// A task of it has failed.
    TaskFailed = 44, "task_failed";
    /// The workflow as a whole took longer than it may.
    WorkflowTimedOut = 45, "workflow_timed_out";
    /// What would undo a step cannot be made of its definition.
    CompensationUnreadable = 46, "compensation_unreadable";
    /// Its definition cannot be read.
    DefinitionUnreadable = 47, "definition_unreadable";
    /// Its schedule has started the next one.
    ReplacedBySchedule = 48, "replaced_by_schedule";
    /// There was no room for another sub-workflow.
    TooManyWorkflows = 49, "too_many_workflows";
}

/// A reason with what there is to say about it.
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

/// Shortens a text from outside to what a record may carry.
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
    fn a_message_is_cut_at_its_limit_between_two_characters() {
        let text = "é".repeat(limits::MESSAGE_BYTES_MAX);
        assert_eq!(cut(text).len(), limits::MESSAGE_BYTES_MAX);
        let odd = format!("x{}", "é".repeat(limits::MESSAGE_BYTES_MAX));
        assert_eq!(cut(odd).len(), limits::MESSAGE_BYTES_MAX - 1);
    }
}
