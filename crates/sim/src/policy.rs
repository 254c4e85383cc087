//! The policy: each version decides each job deterministically by its content. Answers arrive late, twice or never,
//! sometimes from another version than the shard has in force.

use std::collections::{BTreeMap, BTreeSet};

use engine::{PolicyMode, Submission};
use model::id::{Epoch, JobId};
use model::machine::FAIL_OPEN_RULE;
use model::spec::Digest;
use model::time::Millis;
use model::verdict::{Constraints, Decision, PolicyVersion, Verdict};

use crate::coverage::Fault;
use crate::operators::version_of;
use crate::rng::{Rng, mix};
use crate::scenario::{PolicyUse, SECOND, Time, VerdictRates};
use crate::world::{Event, Inbound, Reply, World};

/// Kind of verdict of a policy version on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictKind {
    Allow,
    Constrain,
    /// Throttled a few times, then allowed.
    Throttle,
    RequireApproval,
    Deny,
}

/// The decision of a policy version on a job; the same on every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedDecision {
    pub kind: VerdictKind,
    pub rule: &'static str,
    constraints: Option<Box<Constraints>>,
}

impl ExpectedDecision {
    /// Whether a recorded decision is this one.
    pub fn matches(&self, decision: &Decision) -> bool {
        let fits = match (self.kind, &decision.verdict) {
            (VerdictKind::Allow, Verdict::Allow) | (VerdictKind::Deny, Verdict::Deny) => true,
            (VerdictKind::Constrain, Verdict::AllowWith(constraints)) => {
                self.constraints.as_deref() == Some(constraints)
            }
            (VerdictKind::Throttle, Verdict::Throttle(_) | Verdict::Allow) => true,
            (VerdictKind::RequireApproval, Verdict::RequireApproval) => self.constraints == decision.constraints,
            (
                VerdictKind::Allow
                | VerdictKind::Constrain
                | VerdictKind::Throttle
                | VerdictKind::RequireApproval
                | VerdictKind::Deny,
                _,
            ) => false,
        };
        fits && decision.rule == self.rule
    }
}

#[derive(Debug)]
pub struct Policy {
    seed: u64,
    verdicts: VerdictRates,
    outage_until: Time,
    /// All decisions ever issued, by content.
    issued: BTreeMap<[u8; 16], Vec<Decision>>,
    /// Jobs for which the policy was reported as unavailable.
    unavailable: BTreeSet<JobId>,
}

fn number_of(bytes: [u8; 16]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(number)
}

impl Policy {
    pub fn new(seed: u64, verdicts: VerdictRates) -> Self {
        Self { seed, verdicts, outage_until: 0, issued: BTreeMap::new(), unavailable: BTreeSet::new() }
    }

    pub fn expected_decision(&self, content: Digest, version: PolicyVersion) -> ExpectedDecision {
        let content_seed = self.seed ^ number_of(content.0);
        let version_seed = mix(content_seed ^ number_of(version.0));
        let mut version_rng = Rng::new(version_seed);
        let mut rng = Rng::new(if version_rng.chance(self.verdicts.differ) { version_seed } else { mix(content_seed) });
        let VerdictRates { deny, approval, throttle, constrain, other_rule, .. } = self.verdicts;
        let (kind, rule) = if rng.chance(deny) {
            (VerdictKind::Deny, "deny")
        } else if rng.chance(approval) {
            let other = version_rng.chance(other_rule);
            (VerdictKind::RequireApproval, if other { OTHER_APPROVAL_RULE } else { APPROVAL_RULE })
        } else if rng.chance(throttle) {
            (VerdictKind::Throttle, "throttle")
        } else if rng.chance(constrain) {
            (VerdictKind::Constrain, "constrain")
        } else {
            (VerdictKind::Allow, "allow")
        };
        let limits = kind == VerdictKind::Constrain || (kind == VerdictKind::RequireApproval && version_rng.one_in(2));
        let constraints = limits.then(|| {
            Box::new(Constraints {
                max_runtime: Some(Millis(version_rng.between(SECOND, 60 * SECOND))),
                max_retries: version_rng.one_in(2).then(|| version_rng.below(3) as u32),
                ..Constraints::default()
            })
        });
        ExpectedDecision { kind, rule, constraints }
    }

    /// The decision of a policy version at this time.
    fn decide(&self, content: Digest, version: PolicyVersion, now: Millis, rng: &mut Rng) -> Decision {
        let ExpectedDecision { kind, rule, constraints } = self.expected_decision(content, version);
        let (verdict, constraints) = match kind {
            VerdictKind::Allow => (Verdict::Allow, None),
            VerdictKind::Constrain => (Verdict::AllowWith(constraints.map(|limits| *limits).unwrap_or_default()), None),
            VerdictKind::Throttle if rng.one_in(2) => (Verdict::Throttle(now + Millis(rng.below(10 * SECOND))), None),
            VerdictKind::Throttle => (Verdict::Allow, None),
            VerdictKind::RequireApproval => (Verdict::RequireApproval, constraints),
            VerdictKind::Deny => (Verdict::Deny, None),
        };
        Decision { at: now, verdict, rule: rule.to_owned(), message: None, policy: Some(version), constraints }
    }

    fn record_issued(&mut self, content: Digest, decision: &Decision) {
        self.issued.entry(content.0).or_default().push(decision.clone());
    }

    /// Whether this decision was ever issued for that content.
    pub fn has_issued(&self, content: Digest, decision: &Decision) -> bool {
        // A shard corrects the time of a decision that lies in its future.
        let same =
            |issued: &Decision| *issued == Decision { at: issued.at, ..decision.clone() } && decision.at <= issued.at;
        self.issued.get(&content.0).is_some_and(|issued| issued.iter().any(same))
    }

    pub fn was_unavailable(&self, job: JobId) -> bool {
        self.unavailable.contains(&job)
    }

    pub fn is_fail_open(&self) -> bool {
        self.verdicts.fail_open
    }
}

/// Rules that require an approval.
pub const APPROVAL_RULE: &str = "four eyes";
pub const OTHER_APPROVAL_RULE: &str = "two keys";

impl World {
    /// A policy check of a shard. The answer arrives later, or is lost.
    pub(crate) fn check_policy(&mut self, (shard, epoch): (usize, Epoch), job: JobId, policy: PolicyMode) {
        let Some(content) = self.ledger.jobs.get(&job).map(|known| known.record.digest) else { return };
        // The policy was disabled meanwhile: its last version still answers.
        let requested = version_of(policy).unwrap_or_else(|| self.operators.newest_version());
        let now = self.clock(shard);
        let unavailable = self.now < self.policy.outage_until || self.rng.chance(self.scenario.verdicts.unavailable);
        let decision = if unavailable && !self.policy.is_fail_open() {
            self.coverage.count_fault(Fault::PolicyUnavailable);
            self.policy.unavailable.insert(job);
            None
        } else {
            let decision =
                if unavailable { self.fail_open(requested, now) } else { self.decide(content, requested, now) };
            self.policy.record_issued(content, &decision);
            Some(decision)
        };
        if self.rng.chance(self.scenario.network.lose) {
            self.coverage.count_fault(Fault::PolicyAnswerLost);
            return;
        }
        let twice = self.rng.chance(self.scenario.network.duplicate);
        if twice {
            self.coverage.count_fault(Fault::PolicyAnswerDuplicated);
        }
        for _ in 0..=u8::from(twice) {
            let delay = self.network_delay();
            let reply = match decision.clone() {
                Some(decision) => Reply::Verdict { job, decision },
                None => Reply::PolicyUnavailable { job },
            };
            self.after(delay, Event::Deliver { shard, inbound: Inbound::Reply { epoch, reply } });
        }
    }

    fn decide(&mut self, content: Digest, requested: PolicyVersion, now: Millis) -> Decision {
        let version = if self.rng.chance(self.scenario.verdicts.wrong_version) {
            self.operators.some_version(&mut self.rng)
        } else {
            requested
        };
        if version != requested {
            self.coverage.count_fault(Fault::PolicyAnswerOfWrongVersion);
        }
        self.policy.decide(content, version, now, &mut self.rng)
    }

    fn fail_open(&mut self, version: PolicyVersion, now: Millis) -> Decision {
        self.coverage.count_fault(Fault::PolicyFailedOpen);
        Decision {
            at: now,
            verdict: Verdict::Allow,
            rule: FAIL_OPEN_RULE.to_owned(),
            message: None,
            policy: Some(version),
            constraints: None,
        }
    }

    /// Sometimes attaches a decision made before the submit.
    pub(crate) fn attach_decision(&mut self, submission: &mut Submission) {
        if self.scenario.policy_use == PolicyUse::Disabled || !self.rng.chance(self.scenario.verdicts.attached) {
            return;
        }
        let version = if self.rng.chance(self.scenario.verdicts.attached_old) {
            self.coverage.count_fault(Fault::OldDecisionAttached);
            self.operators.some_version(&mut self.rng)
        } else {
            self.coverage.count("decisions attached to a submit");
            self.operators.newest_version()
        };
        let now = self.scenario.start + Millis(self.now);
        let decision = self.policy.decide(submission.spec.digest, version, now, &mut self.rng);
        self.policy.record_issued(submission.spec.digest, &decision);
        submission.decision = Some(Box::new(decision));
    }

    /// Makes the policy unavailable for a while.
    pub(crate) fn start_policy_outage(&mut self) {
        self.coverage.count_fault(Fault::PolicyOutage);
        self.policy.outage_until = self.now + self.rng.between(SECOND, 30 * SECOND);
    }

    pub(crate) fn end_policy_outage(&mut self) {
        self.policy.outage_until = self.now;
    }
}
