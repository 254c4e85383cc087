//! The policy and the people it asks: they make up their minds about each job once, and say so late, twice or never.

use engine::PolicyMode;
use model::id::JobId;
use model::spec::Digest;
use model::time::Millis;
use model::verdict::{Approval, Constraints, Decision, Verdict};

use crate::coverage::Fault;
use crate::invariants::Checked;
use crate::plan::{SECOND, Verdicts};
use crate::rng::{Rate, Rng, mix};
use crate::world::{Event, Inbound, World};

/// What the policy thinks of a job, however often it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    Allow,
    Constrain,
    /// Not now, a few times; then yes.
    Throttle,
    RequireApproval,
    Deny,
}

impl Truth {
    pub fn rule(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Constrain => "constrain",
            Self::Throttle => "throttle",
            Self::RequireApproval => "four eyes",
            Self::Deny => "deny",
        }
    }
}

#[derive(Debug)]
pub struct Policy {
    seed: u64,
    mode: PolicyMode,
    verdicts: Verdicts,
}

impl Policy {
    pub fn new(seed: u64, mode: PolicyMode, verdicts: Verdicts) -> Self {
        Self { seed, mode, verdicts }
    }

    /// What it thinks of a job; nothing where nobody is asked.
    pub fn truth(&self, job: JobId) -> Option<Truth> {
        match self.mode {
            PolicyMode::AllowAll => None,
            PolicyMode::Ask => Some(self.think(job)),
        }
    }

    fn think(&self, job: JobId) -> Truth {
        let mut rng = Rng::new(mix(self.seed ^ job.0));
        let Verdicts { deny, approval, throttle, constrain } = self.verdicts;
        if rng.chance(deny) {
            Truth::Deny
        } else if rng.chance(approval) {
            Truth::RequireApproval
        } else if rng.chance(throttle) {
            Truth::Throttle
        } else if rng.chance(constrain) {
            Truth::Constrain
        } else {
            Truth::Allow
        }
    }

    /// Whether the people asked will say yes.
    fn will_approve(&self, job: JobId) -> bool {
        !mix(self.seed.rotate_left(7) ^ job.0).is_multiple_of(4)
    }
}

impl World {
    /// The policy was asked; its answer comes later, if at all.
    pub(crate) fn ask_policy(&mut self, shard: usize, job: JobId) {
        let Some(truth) = self.policy.truth(job) else { return };
        let now = self.clock(shard);
        let verdict = match truth {
            Truth::Allow => Verdict::Allow,
            Truth::Constrain => Verdict::AllowWith(Constraints {
                max_runtime: Some(Millis(self.rng.between(SECOND, 60 * SECOND))),
                max_retries: Some(self.rng.below(3) as u32),
            }),
            Truth::Throttle if self.rng.one_in(2) => Verdict::Throttle(now + Millis(self.rng.below(10 * SECOND))),
            Truth::Throttle => Verdict::Allow,
            Truth::RequireApproval => Verdict::RequireApproval,
            Truth::Deny => Verdict::Deny,
        };
        let decision = Decision { at: now, verdict, rule: truth.rule().to_owned(), message: None };
        if self.rng.chance(self.plan.network.lose) {
            self.coverage.fault(Fault::PolicyAnswerLost);
            return;
        }
        let copies = if self.rng.chance(self.plan.network.duplicate) {
            self.coverage.fault(Fault::PolicyAnswerDuplicated);
            2
        } else {
            1
        };
        for _ in 0..copies {
            let delay = self.network_delay();
            let inbound = Inbound::Verdict { job, decision: decision.clone() };
            self.after(delay, Event::Deliver { shard, inbound });
        }
    }

    /// Approvers look through what waits for them and say yes or no to some of it.
    pub(crate) fn approvers_look(&mut self) -> Checked {
        let waiting: Vec<(JobId, Digest)> = self
            .ledger
            .jobs
            .values()
            .filter(|known| known.record.state == model::state::State::ApprovalRequired)
            .map(|known| (known.record.id, known.record.digest))
            .collect();
        for (job, digest) in waiting {
            if !self.is_healed() && self.rng.one_in(2) {
                continue;
            }
            let mistaken = !self.is_healed() && self.rng.chance(Rate(2_000));
            let digest = if mistaken { Digest([0xEE; 16]) } else { digest };
            if mistaken {
                self.coverage.fault(Fault::ApprovalOfOtherContent);
            }
            let rule =
                if self.is_healed() || self.rng.chance(Rate(9_000)) { Truth::RequireApproval } else { Truth::Allow };
            let approval = Approval {
                at: self.plan.start,
                by: "someone".to_owned(),
                approved: self.policy.will_approve(job),
                comment: None,
                digest,
                rule: rule.rule().to_owned(),
            };
            self.operate_once(crate::client::Operation::Approve { job, approval });
        }
        self.after(5 * SECOND, Event::ApproversLook);
        Ok(())
    }
}
