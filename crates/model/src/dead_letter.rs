//! Dead letters: records of jobs that failed for good, until an operator retries or purges them.
//!
//! A compensation whose job cannot be rendered has a dead letter without a job.

use minicbor::{Decode, Encode};

use crate::id::WorkflowId;
use crate::job::Job;
use crate::reason::{Reason, ReasonCode};
use crate::state::State;
use crate::time::Millis;

/// A dead letter. Its job, or its workflow, stays on record as long as the dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DeadLetter {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub state: State,
    #[n(2)]
    pub reason: Option<ReasonCode>,
    #[n(3)]
    pub message: Option<String>,
    #[n(4)]
    pub topic: String,
    #[n(5)]
    pub tenant: String,
    /// The compensation that could not be submitted. Absent for a job.
    #[n(6)]
    pub compensation: Option<UnsubmittedCompensation>,
}

/// A compensation whose job could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct UnsubmittedCompensation {
    #[n(0)]
    pub workflow: WorkflowId,
    /// Name of the task, with the number of the item if any.
    #[n(1)]
    pub task: String,
}

/// Whether a job that ends in `state` gets a dead letter: all but success and cancel.
pub fn is_dead(state: State) -> bool {
    match state {
        State::Failed | State::TimedOut | State::Denied | State::Quarantined | State::Abandoned => true,
        State::Succeeded | State::Cancelled => false,
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Scanning => false,
    }
}

impl DeadLetter {
    /// Dead letter of a job in a state for which [`is_dead`] holds.
    pub fn new(job: &Job, topic: String, tenant: String) -> Self {
        Self {
            at: job.since(),
            state: job.state,
            reason: job.reason.as_ref().map(|reason| reason.code),
            message: job.reason.as_ref().and_then(|reason| reason.message.clone()),
            topic,
            tenant,
            compensation: None,
        }
    }

    /// Dead letter of a compensation without a job.
    pub fn of_compensation(at: Millis, reason: Reason, tenant: String, compensation: UnsubmittedCompensation) -> Self {
        Self {
            at,
            state: State::Failed,
            reason: Some(reason.code),
            message: reason.message,
            // Part of the job that could not be rendered.
            topic: String::new(),
            tenant,
            compensation: Some(compensation),
        }
    }
}
