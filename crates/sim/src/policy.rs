//! The policy: each set of rules makes up its mind about each job once, by its content, and says so late, twice or
//! never; sometimes it is another set than the asking shard has in force.

use std::collections::{BTreeMap, BTreeSet};

use engine::{Gate, Submission};
use model::id::JobId;
use model::machine::FAIL_OPEN_RULE;
use model::spec::Digest;
use model::time::Millis;
use model::verdict::{Constraints, Decision, PolicyVersion, Verdict};

use crate::coverage::Fault;
use crate::operators::version_of;
use crate::plan::{Gates, SECOND, Time, Verdicts};
use crate::rng::{Rng, mix};
use crate::world::{Event, Inbound, World};

/// What kind of answer a set of rules has for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    Allow,
    Constrain,
    /// Not now, a few times; then yes.
    Throttle,
    RequireApproval,
    Deny,
}

/// What a set of rules thinks of a job, however often it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opinion {
    pub truth: Truth,
    pub rule: &'static str,
    constraints: Option<Box<Constraints>>,
}

impl Opinion {
    /// Whether this decision says what the rules think.
    pub fn admits(&self, decision: &Decision) -> bool {
        let fits = match (self.truth, &decision.verdict) {
            (Truth::Allow, Verdict::Allow) | (Truth::Deny, Verdict::Deny) => true,
            (Truth::Constrain, Verdict::AllowWith(constraints)) => self.constraints.as_deref() == Some(constraints),
            (Truth::Throttle, Verdict::Throttle(_) | Verdict::Allow) => true,
            (Truth::RequireApproval, Verdict::RequireApproval) => self.constraints == decision.constraints,
            (Truth::Allow | Truth::Constrain | Truth::Throttle | Truth::RequireApproval | Truth::Deny, _) => false,
        };
        fits && decision.rule == self.rule
    }
}

#[derive(Debug)]
pub struct Policy {
    seed: u64,
    verdicts: Verdicts,
    away_until: Time,
    /// Every decision that was ever told to anyone, by the content that it is about.
    said: BTreeMap<[u8; 16], Vec<Decision>>,
    /// Jobs about which it was once said that the policy cannot be asked.
    unavailable: BTreeSet<JobId>,
}

fn number_of(bytes: [u8; 16]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(number)
}

impl Policy {
    pub fn new(seed: u64, verdicts: Verdicts) -> Self {
        Self { seed, verdicts, away_until: 0, said: BTreeMap::new(), unavailable: BTreeSet::new() }
    }

    pub fn opinion(&self, content: Digest, version: PolicyVersion) -> Opinion {
        let about = self.seed ^ number_of(content.0);
        let of_this_version = mix(about ^ number_of(version.0));
        let mut own = Rng::new(of_this_version);
        let mut rng = Rng::new(if own.chance(self.verdicts.differ) { of_this_version } else { mix(about) });
        let Verdicts { deny, approval, throttle, constrain, other_rule, .. } = self.verdicts;
        let (truth, rule) = if rng.chance(deny) {
            (Truth::Deny, "deny")
        } else if rng.chance(approval) {
            let other = own.chance(other_rule);
            (Truth::RequireApproval, if other { OTHER_ASKING_RULE } else { ASKING_RULE })
        } else if rng.chance(throttle) {
            (Truth::Throttle, "throttle")
        } else if rng.chance(constrain) {
            (Truth::Constrain, "constrain")
        } else {
            (Truth::Allow, "allow")
        };
        let limits = truth == Truth::Constrain || (truth == Truth::RequireApproval && own.one_in(2));
        let constraints = limits.then(|| {
            Box::new(Constraints {
                max_runtime: Some(Millis(own.between(SECOND, 60 * SECOND))),
                max_retries: own.one_in(2).then(|| own.below(3) as u32),
                ..Constraints::default()
            })
        });
        Opinion { truth, rule, constraints }
    }

    /// What these rules say of a job at this moment.
    fn decide(&self, content: Digest, version: PolicyVersion, now: Millis, rng: &mut Rng) -> Decision {
        let Opinion { truth, rule, constraints } = self.opinion(content, version);
        let (verdict, constraints) = match truth {
            Truth::Allow => (Verdict::Allow, None),
            Truth::Constrain => (Verdict::AllowWith(constraints.map(|limits| *limits).unwrap_or_default()), None),
            Truth::Throttle if rng.one_in(2) => (Verdict::Throttle(now + Millis(rng.below(10 * SECOND))), None),
            Truth::Throttle => (Verdict::Allow, None),
            Truth::RequireApproval => (Verdict::RequireApproval, constraints),
            Truth::Deny => (Verdict::Deny, None),
        };
        Decision { at: now, verdict, rule: rule.to_owned(), message: None, policy: Some(version), constraints }
    }

    fn note_said(&mut self, content: Digest, decision: &Decision) {
        self.said.entry(content.0).or_default().push(decision.clone());
    }

    /// Whether anybody has ever said this of that content.
    pub fn has_said(&self, content: Digest, decision: &Decision) -> bool {
        // A shard that hears of a decision before its time puts the time right.
        let same = |said: &Decision| *said == Decision { at: said.at, ..decision.clone() } && decision.at <= said.at;
        self.said.get(&content.0).is_some_and(|said| said.iter().any(same))
    }

    pub fn was_unavailable(&self, job: JobId) -> bool {
        self.unavailable.contains(&job)
    }

    pub fn fails_open(&self) -> bool {
        self.verdicts.fail_open
    }
}

/// The rules that ask for an approval.
pub const ASKING_RULE: &str = "four eyes";
pub const OTHER_ASKING_RULE: &str = "two keys";

impl World {
    /// A shard has asked; the answer comes later, if at all.
    pub(crate) fn ask_policy(&mut self, shard: usize, job: JobId, gate: Gate) {
        let Some(content) = self.ledger.jobs.get(&job).map(|known| known.record.digest) else { return };
        // Where the policy was switched off meanwhile, what it last was answers all the same.
        let asked = version_of(gate).unwrap_or_else(|| self.operators.newest_version());
        let now = self.clock(shard);
        let away = self.now < self.policy.away_until || self.rng.chance(self.plan.verdicts.unavailable);
        let decision = if away && !self.policy.fails_open() {
            self.coverage.fault(Fault::PolicyUnavailable);
            self.policy.unavailable.insert(job);
            None
        } else {
            let decision = if away { self.fail_open(asked, now) } else { self.decide(content, asked, now) };
            self.policy.note_said(content, &decision);
            Some(decision)
        };
        if self.rng.chance(self.plan.network.lose) {
            self.coverage.fault(Fault::PolicyAnswerLost);
            return;
        }
        let twice = self.rng.chance(self.plan.network.duplicate);
        if twice {
            self.coverage.fault(Fault::PolicyAnswerDuplicated);
        }
        for _ in 0..=u8::from(twice) {
            let delay = self.network_delay();
            let inbound = match decision.clone() {
                Some(decision) => Inbound::Verdict { job, decision },
                None => Inbound::PolicyUnavailable { job },
            };
            self.after(delay, Event::Deliver { shard, inbound });
        }
    }

    fn decide(&mut self, content: Digest, asked: PolicyVersion, now: Millis) -> Decision {
        let version = if self.rng.chance(self.plan.verdicts.of_other_rules) {
            self.operators.some_version(&mut self.rng)
        } else {
            asked
        };
        if version != asked {
            self.coverage.fault(Fault::PolicyAnswerOfOtherRules);
        }
        self.policy.decide(content, version, now, &mut self.rng)
    }

    fn fail_open(&mut self, version: PolicyVersion, now: Millis) -> Decision {
        self.coverage.fault(Fault::PolicyFailedOpen);
        Decision {
            at: now,
            verdict: Verdict::Allow,
            rule: FAIL_OPEN_RULE.to_owned(),
            message: None,
            policy: Some(version),
            constraints: None,
        }
    }

    /// The policy is asked before the job is submitted, now and then.
    pub(crate) fn attach_decision(&mut self, submission: &mut Submission) {
        if self.plan.gates == Gates::Open || !self.rng.chance(self.plan.verdicts.attached) {
            return;
        }
        let version = if self.rng.chance(self.plan.verdicts.attached_old) {
            self.coverage.fault(Fault::OldDecisionAttached);
            self.operators.some_version(&mut self.rng)
        } else {
            self.coverage.note("decisions attached");
            self.operators.newest_version()
        };
        let now = self.plan.start + Millis(self.now);
        let decision = self.policy.decide(submission.spec.digest, version, now, &mut self.rng);
        self.policy.note_said(submission.spec.digest, &decision);
        submission.decision = Some(Box::new(decision));
    }

    /// For a while nobody answers.
    pub(crate) fn policy_goes_away(&mut self) {
        self.coverage.fault(Fault::PolicyAway);
        self.policy.away_until = self.now + self.rng.between(SECOND, 30 * SECOND);
    }

    pub(crate) fn policy_is_back(&mut self) {
        self.policy.away_until = self.now;
    }
}
