//! Access to the output of attempts: quarantined output is never shown, held output only after its scan.

use ::api::is_withheld;
use model::id::Attempt;
use model::job::Job;
use model::spec::decode_topic;
use model::state::State;

use super::Core;
use super::problem::{ProblemKind, Refused};

/// Whether the output of an attempt may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Open,
    /// After the scan of its result.
    Later,
    Never,
}

pub(crate) fn access(core: &Core, job: &Job, attempt: Attempt) -> Access {
    let record = job.attempts.iter().find(|record| record.attempt == attempt);
    let ended = record.is_some_and(|record| record.ended_at.is_some());
    if job.state == State::Scanning && attempt == job.attempt {
        return Access::Later;
    }
    if record.is_some_and(|record| is_withheld(job, record)) {
        return Access::Never;
    }
    let is_shown = job.state == State::Succeeded && attempt == job.attempt;
    if is_shown || !holds_results(core, job) {
        return Access::Open;
    }
    // Output of attempts that did not succeed is never scanned, so it is never shown.
    if ended || job.state.is_terminal() { Access::Never } else { Access::Later }
}

/// Whether the topic of the job holds results, including output, until they are scanned.
fn holds_results(core: &Core, job: &Job) -> bool {
    let settings = core.policy.settings();
    if !settings.scans_outputs() {
        return false;
    }
    // An unreadable topic counts as one that holds results.
    decode_topic(&job.spec)
        .ok()
        .is_none_or(|topic| settings.topic(topic).is_some_and(|topic| topic.output.hold_until_scanned))
}

/// The refusal of requests for withheld output.
pub(crate) fn quarantined(job: &Job) -> Refused {
    let detail = match job.state {
        State::Quarantined => {
            let why = job.reason.as_ref().and_then(|reason| reason.message.as_deref());
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let id = job.id;
            format!("the policy quarantined the result{why}. An operator can release it: POST /v1/jobs/{id}/release")
        }
        State::Succeeded | State::Failed | State::TimedOut | State::Cancelled | State::Denied | State::Abandoned => {
            "the attempt was never scanned, or its result was quarantined before the job was retried".to_owned()
        }
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Scanning => {
            "its topic holds results and output until they are scanned: wait for the end of the job".to_owned()
        }
    };
    Refused::detailed(ProblemKind::Quarantined, detail)
}
