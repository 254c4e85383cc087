//! What is kept of a job that ended undone, until an operator has dealt with it.

use minicbor::{Decode, Encode};

use crate::job::Job;
use crate::reason::ReasonCode;
use crate::state::State;
use crate::time::Millis;

/// A dead letter. The job itself stays on record as long as its letter does.
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
}

/// Whether a job that ends so leaves a letter: its work is not done, and nobody wanted it so.
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
    /// The letter of a job that has ended in a state for which [`is_dead`].
    pub fn new(job: &Job, topic: String, tenant: String) -> Self {
        Self {
            at: job.since(),
            state: job.state,
            reason: job.reason.as_ref().map(|reason| reason.code),
            message: job.reason.as_ref().and_then(|reason| reason.message.clone()),
            topic,
            tenant,
        }
    }
}
