//! The output policy: metadata checks and content scans of results. The decision on each result is deterministic; scans
//! are answered late, twice or never.

use std::collections::BTreeSet;

use model::id::{Attempt, Epoch, JobId};
use model::job::{Redacted, Scan};
use model::message::AttemptRef;
use model::state::State;
use model::time::Millis;
use model::verdict::{OutputDecision, OutputVerdict, Phase};

use crate::coverage::Fault;
use crate::invariants::redacted_of;
use crate::rng::{Rng, mix};
use crate::scenario::{OutputRates, SECOND};
use crate::world::{Event, Inbound, Reply, World};

#[derive(Debug)]
pub struct Scanner {
    seed: u64,
    outputs: OutputRates,
    /// Results whose scan failed.
    failed: BTreeSet<AttemptRef>,
}

impl Scanner {
    pub fn new(seed: u64, outputs: OutputRates) -> Self {
        Self { seed, outputs, failed: BTreeSet::new() }
    }

    fn rng_for(&self, attempt_ref: AttemptRef, phase: Phase) -> Rng {
        let attempt_hash =
            attempt_ref.job.0 ^ u64::from(attempt_ref.attempt.0).rotate_left(40) ^ (phase as u64).rotate_left(60);
        Rng::new(mix(self.seed.rotate_left(17) ^ attempt_hash))
    }

    fn decision(&self, attempt_ref: AttemptRef, phase: Phase, rng: &mut Rng) -> OutputDecision {
        let OutputRates { quarantine, deny, redact, .. } = self.outputs;
        let verdict = if rng.chance(quarantine) {
            OutputVerdict::Quarantine
        } else if rng.chance(deny) {
            OutputVerdict::Deny
        } else if rng.chance(redact) {
            OutputVerdict::Redact
        } else {
            OutputVerdict::Allow
        };
        OutputDecision {
            at: Millis(0),
            phase,
            verdict,
            rule: verdict.as_str().to_owned(),
            // Unique per attempt, so that decisions on different attempts differ.
            message: Some(format!("{}/{}", attempt_ref.job, attempt_ref.attempt)),
            policy: None,
            findings: Vec::new(),
            attempt: attempt_ref.attempt,
        }
    }

    /// Decision of the metadata check on a result, if any.
    pub fn metadata_decision(&self, attempt_ref: AttemptRef) -> Option<OutputDecision> {
        let mut rng = self.rng_for(attempt_ref, Phase::Metadata);
        rng.chance(self.outputs.metadata).then(|| self.decision(attempt_ref, Phase::Metadata, &mut rng))
    }

    /// Outcome of the content scan.
    pub fn content_scan(&self, attempt_ref: AttemptRef) -> Scan {
        let mut rng = self.rng_for(attempt_ref, Phase::Content);
        let decision = self.decision(attempt_ref, Phase::Content, &mut rng);
        let copy = decision.verdict == OutputVerdict::Redact && !rng.chance(self.outputs.without_copy);
        let redacted = copy.then(|| Redacted {
            spilled: None,
            result: Some(redacted_of(attempt_ref)),
            artifacts: Vec::new(),
            log: None,
            keep_original: rng.chance(self.outputs.keep_original),
        });
        Scan { decision, redacted }
    }

    pub fn has_failed(&self, attempt_ref: AttemptRef) -> bool {
        self.failed.contains(&attempt_ref)
    }

    /// Whether this is the decision on any attempt of the job so far.
    pub fn has_issued(&self, job: JobId, attempts: Attempt, decision: &OutputDecision) -> bool {
        (1..=attempts.0).rev().any(|attempt| {
            let attempt_ref = AttemptRef { job, attempt: Attempt(attempt) };
            match decision.phase {
                Phase::Metadata => self.metadata_decision(attempt_ref).as_ref() == Some(decision),
                Phase::Content => self.content_scan(attempt_ref).decision == *decision,
            }
        })
    }
}

impl World {
    /// A scan request of a shard. The answer arrives late, twice or never.
    pub(crate) fn scan_output(&mut self, (shard, epoch): (usize, Epoch), attempt_ref: AttemptRef) {
        if self.scans_disabled() {
            return;
        }
        let outputs = self.scenario.outputs;
        if self.rng.chance(outputs.unanswered) {
            self.coverage.count_fault(Fault::ScanUnanswered);
            return;
        }
        let fails = self.rng.chance(outputs.fail);
        if fails {
            self.coverage.count_fault(Fault::ScanFailed);
            self.scanner.failed.insert(attempt_ref);
        }
        for delay in self.message_delays() {
            let slow = self.rng.chance(outputs.slow);
            if slow {
                self.coverage.count_fault(Fault::ScanSlow);
            }
            let delay = if slow { self.rng.between(SECOND, 40 * SECOND) } else { delay };
            let reply = if fails {
                Reply::ScanFailed { attempt_ref }
            } else {
                Reply::Scanned { attempt_ref, scan: Box::new(self.scanner.content_scan(attempt_ref)) }
            };
            self.after(delay, Event::Deliver { shard, inbound: Inbound::Reply { epoch, reply } });
        }
    }

    /// Scans a result that is already shown, without a request.
    pub(crate) fn scan_some_result(&mut self) {
        let known = self.ledger.jobs.values().filter(|known| known.record.state == State::Succeeded);
        let results: Vec<AttemptRef> =
            known.map(|known| AttemptRef { job: known.record.id, attempt: known.record.attempt }).collect();
        if let Some(attempt_ref) = self.rng.pick(&results).copied() {
            self.coverage.count_fault(Fault::ScanUnrequested);
            let shard = usize::from(self.scenario.shards.owner(attempt_ref.job.slot()).0);
            let epoch = self.ledger.newest_epoch(self.shard_id(shard));
            let scan = Box::new(self.scanner.content_scan(attempt_ref));
            for delay in self.message_delays() {
                let reply = Reply::Scanned { attempt_ref, scan: scan.clone() };
                self.after(delay, Event::Deliver { shard, inbound: Inbound::Reply { epoch, reply } });
            }
        }
    }
}
