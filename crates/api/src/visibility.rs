//! Visibility of results: which results, artifacts and logs the API withholds.

use model::job::{AttemptRecord, End, Job};
use model::spec::Digest;
use model::state::State;

/// Whether the newest result of a job, its artifacts and its log are withheld.
pub fn is_hidden(job: &Job) -> bool {
    match job.state {
        State::Scanning | State::Quarantined => true,
        State::Succeeded => false,
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Abandoned => job.last_attempt().is_some_and(|attempt| is_withheld(job, attempt)),
    }
}

/// Whether the log of an attempt is withheld. A result that the policy scans is shown only once its job has succeeded.
/// A result that was quarantined, or cancelled before its scan, stays withheld when the job is retried.
pub fn is_withheld(job: &Job, attempt: &AttemptRecord) -> bool {
    let is_scanned = job.hold_until_scanned || !job.output_decisions().is_empty();
    let is_newest = attempt.attempt == job.attempt;
    match job.state {
        State::Scanning | State::Quarantined if is_newest => true,
        State::Succeeded if is_newest => false,
        State::Scanning
        | State::Quarantined
        | State::Succeeded
        | State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        // Held results are shown after their scan. Attempts that did not succeed are never scanned.
        | State::Abandoned => job.hold_until_scanned || (is_scanned && attempt.end == Some(End::Succeeded)),
    }
}

/// Text form of a digest: 32 hexadecimal digits.
pub fn digest_as_text(digest: Digest) -> String {
    digest.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Inverse of [`digest_as_text`].
pub fn digest_of_text(text: &str) -> Option<Digest> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(Digest(bytes))
}

#[cfg(test)]
mod tests {
    use model::json::Json;
    use model::spec::JobSpec;
    use model::time::Millis;
    use model::verdict::Approval;

    use super::*;
    use crate::{ApprovalDecisionView, JobView};
    use model::id::{Attempt, Incarnation, JobId, QueueId, RunnerId};
    use model::job::NewJob;
    use model::spec::{EchoRun, Run};

    #[test]
    fn a_digest_reads_back_from_its_text_and_from_no_other() {
        let digest = Digest::of(b"content");
        assert_eq!(digest_of_text(&digest_as_text(digest)), Some(digest));
        for text in ["", "0", &"g".repeat(32), &"0".repeat(31), &"0".repeat(33), &"+1".repeat(16), &"é".repeat(16)] {
            assert_eq!(digest_of_text(text), None, "{text}");
        }
    }

    /// A job whose only attempt succeeded, of a topic that holds results until they are scanned.
    fn held(state: State) -> Job {
        let spec = JobSpec::new(Run::Echo(EchoRun::default())).pack();
        let (id, queue, now) = (JobId(1), QueueId(1), Millis(0));
        let birth = NewJob { id, queue, seq: 1, now, queue_max_retries: 0, runtime_max: None };
        let attempt = AttemptRecord::new(Attempt(1), RunnerId(1), Incarnation(1), now);
        let mut job = Job::new(birth, spec);
        job.state = state;
        job.attempt = Attempt(1);
        job.attempts = vec![AttemptRecord { end: Some(End::Succeeded), ..attempt }];
        job.result = Some(Json::null());
        job.hold_until_scanned = true;
        job
    }

    #[test]
    fn a_held_result_is_shown_only_once_its_job_has_succeeded() {
        for state in State::ALL {
            let job = held(state);
            assert_eq!(is_hidden(&job), state != State::Succeeded, "{state}");
            let shown = JobView::new(&job, job.decode_spec().unwrap());
            assert_eq!(shown.result.is_none(), state != State::Succeeded, "{state}");
        }
    }

    #[test]
    fn a_result_quarantined_in_an_earlier_attempt_stays_withheld() {
        let mut job = held(State::Succeeded);
        let second = AttemptRecord::new(Attempt(2), RunnerId(1), Incarnation(1), Millis(5));
        job.attempts.push(AttemptRecord { end: Some(End::Succeeded), ..second });
        job.attempt = Attempt(2);
        assert!(is_withheld(&job, &job.attempts[0]) && !is_withheld(&job, &job.attempts[1]));
        assert!(!is_hidden(&job));
    }

    #[test]
    fn unscanned_results_are_shown_in_any_state() {
        let job = Job { hold_until_scanned: false, ..held(State::Cancelled) };
        assert!(!is_hidden(&job));
        assert!(is_hidden(&Job { state: State::Quarantined, ..job }), "a quarantined result is withheld");
    }

    #[test]
    fn an_approval_without_an_actor_has_no_name() {
        let approval = Approval {
            at: Millis(5),
            by: String::new(),
            approved: true,
            comment: None,
            digest: Digest::of(b""),
            rule: "r".to_owned(),
        };
        assert_eq!(ApprovalDecisionView::from(&approval).by, None);
    }
}
