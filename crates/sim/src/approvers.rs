//! The people whom the policy asks: they say yes or no, about other things than they should, twice, too late or never.

use engine::Word;
use model::id::JobId;
use model::job::Job;
use model::reason::ReasonCode;
use model::spec::Digest;
use model::state::State;

use crate::client::Operation;
use crate::coverage::Fault;
use crate::plan::{SECOND, Time};
use crate::policy::{ASKING_RULE, OTHER_ASKING_RULE};
use crate::rng::mix;
use crate::world::{Event, World};

const LOOK_EVERY: Time = 5 * SECOND;

/// A job as an approver sees it.
struct Waiting {
    job: JobId,
    digest: Digest,
    rule: String,
    is_late: bool,
}

fn waits(job: &Job) -> bool {
    job.state == State::ApprovalRequired
}

/// Nobody said a word in time.
fn has_expired(job: &Job) -> bool {
    job.state == State::Denied && job.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::ApprovalExpired)
}

impl World {
    /// Approvers look through what waits for them and say yes or no to some of it.
    pub(crate) fn approvers_look(&mut self) {
        let known = self.ledger.jobs.values().filter(|known| !known.removed).map(|known| &known.record);
        let waiting: Vec<Waiting> = known
            .filter(|job| waits(job) || has_expired(job))
            .map(|job| Waiting {
                job: job.id,
                digest: job.digest,
                rule: job.last_decision().map(|decision| decision.rule.clone()).unwrap_or_default(),
                is_late: !waits(job),
            })
            .collect();
        for waiting in waiting {
            self.approver_speaks(&waiting);
        }
        self.after(LOOK_EVERY, Event::ApproversLook);
    }

    fn approver_speaks(&mut self, waiting: &Waiting) {
        let approvers = self.plan.approvers;
        if waiting.is_late {
            if self.is_healed() || !self.rng.chance(approvers.too_late) {
                return;
            }
            self.coverage.fault(Fault::ApprovalTooLate);
        } else if !self.is_healed() && self.rng.one_in(2) {
            return;
        }
        let mut word = Word {
            by: Some("someone".into()),
            approved: self.plan.is_calm || !mix(waiting.job.0.rotate_left(7)).is_multiple_of(4),
            comment: None,
            digest: Some(waiting.digest),
            rule: Some(waiting.rule.clone()),
        };
        if !self.is_healed() {
            self.misunderstand(&mut word);
        }
        let twice = !self.is_healed() && self.rng.chance(approvers.twice);
        for _ in 0..=u8::from(twice) {
            let operation = Operation::Approve { job: waiting.job, word: Box::new(word.clone()) };
            self.ledger.note_word(waiting.job, &word);
            self.operate_once(operation);
        }
        if twice {
            self.coverage.fault(Fault::ApprovalTwice);
        }
    }

    fn misunderstand(&mut self, word: &mut Word) {
        let approvers = self.plan.approvers;
        if self.rng.chance(approvers.other_content) {
            self.coverage.fault(Fault::ApprovalOfOtherContent);
            word.digest = Some(Digest([0xEE; 16]));
        } else if self.rng.chance(approvers.other_rule) {
            self.coverage.fault(Fault::ApprovalOfOtherRule);
            let other = if word.rule.as_deref() == Some(ASKING_RULE) { OTHER_ASKING_RULE } else { ASKING_RULE };
            word.rule = Some(other.to_owned());
        } else if self.rng.chance(approvers.unspecific) {
            (word.digest, word.rule) = (None, None);
        }
    }
}
