//! Whose output may be seen: what the policy quarantines nobody gets, and what is held until it was scanned nobody gets
//! before.

use model::id::Attempt;
use model::job::Job;
use model::spec::decode_topic;
use model::state::State;
use model::view::is_withheld;

use super::Core;
use super::problem::{Fault, Refused};

/// Whether the output of an attempt may be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Open,
    /// Once its result was looked at.
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
    // What an attempt leaves that does not succeed is not looked at, and so not shown.
    if ended || job.state.is_terminal() { Access::Never } else { Access::Later }
}

/// Whether the job's topic shows results only after they were scanned. Its output is a part of them.
fn holds_results(core: &Core, job: &Job) -> bool {
    let setup = core.policy.setup();
    if !setup.scans_outputs() {
        return false;
    }
    // What cannot be read is not known to be free.
    decode_topic(&job.spec)
        .ok()
        .is_none_or(|topic| setup.topic(topic).is_some_and(|topic| topic.output.hold_until_scanned))
}

/// The refusal of whoever asks for what is withheld.
pub(crate) fn quarantined(job: &Job) -> Refused {
    let detail = match job.state {
        State::Quarantined => {
            let why = job.reason.as_ref().and_then(|reason| reason.message.as_deref());
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            format!("the policy has quarantined it{why}. An operator may release it: POST /v1/jobs/{}/release", job.id)
        }
        State::Succeeded | State::Failed | State::TimedOut | State::Cancelled | State::Denied | State::Abandoned => {
            "it was not let out before the job ended, or was quarantined in an earlier try".to_owned()
        }
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Scanning => "its topic holds results and output until they were scanned: wait for its end".to_owned(),
    };
    Refused::saying(Fault::Quarantined, detail)
}
