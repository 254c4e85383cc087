//! Whoever looks at results: at once at what is known about them, later at their content. They make up their minds about
//! each result once, and say so late, twice or never.

use std::collections::BTreeSet;

use model::id::{Attempt, JobId};
use model::job::{Redacted, Scan};
use model::message::{FromRunner, RunnerWord, Ticket};
use model::state::State;
use model::time::Millis;
use model::verdict::{OutputDecision, OutputVerdict, Phase};

use crate::coverage::Fault;
use crate::invariants::redacted_of;
use crate::plan::{Outputs, SECOND};
use crate::rng::{Rng, mix};
use crate::world::{Event, Inbound, World};

#[derive(Debug)]
pub struct Scanner {
    seed: u64,
    outputs: Outputs,
    /// Results of which it was said that they could not be looked at.
    failed: BTreeSet<Ticket>,
}

impl Scanner {
    pub fn new(seed: u64, outputs: Outputs) -> Self {
        Self { seed, outputs, failed: BTreeSet::new() }
    }

    fn think(&self, ticket: Ticket, phase: Phase) -> Rng {
        let about = ticket.job.0 ^ u64::from(ticket.attempt.0).rotate_left(40) ^ (phase as u64).rotate_left(60);
        Rng::new(mix(self.seed.rotate_left(17) ^ about))
    }

    fn decision(&self, ticket: Ticket, phase: Phase, rng: &mut Rng) -> OutputDecision {
        let Outputs { quarantine, deny, redact, .. } = self.outputs;
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
            // So that what was said of one attempt cannot be taken for what was said of another.
            message: Some(format!("{}/{}", ticket.job, ticket.attempt)),
            policy: None,
            findings: Vec::new(),
            attempt: ticket.attempt,
        }
    }

    /// What is said of a result at once, if anything.
    pub fn metadata(&self, ticket: Ticket) -> Option<OutputDecision> {
        let mut rng = self.think(ticket, Phase::Metadata);
        rng.chance(self.outputs.metadata).then(|| self.decision(ticket, Phase::Metadata, &mut rng))
    }

    /// What a look at the content comes to.
    pub fn content(&self, ticket: Ticket) -> Scan {
        let mut rng = self.think(ticket, Phase::Content);
        let decision = self.decision(ticket, Phase::Content, &mut rng);
        let copy = decision.verdict == OutputVerdict::Redact && !rng.chance(self.outputs.without_copy);
        let redacted = copy.then(|| Redacted {
            result: Some(redacted_of(ticket)),
            artifacts: Vec::new(),
            log: None,
            keep_original: rng.chance(self.outputs.keep_original),
        });
        Scan { decision, redacted }
    }

    pub fn has_failed(&self, ticket: Ticket) -> bool {
        self.failed.contains(&ticket)
    }

    /// Whether this was said of any attempt of the job so far.
    pub fn has_said(&self, job: JobId, attempts: Attempt, decision: &OutputDecision) -> bool {
        (1..=attempts.0).rev().any(|attempt| {
            let ticket = Ticket { job, attempt: Attempt(attempt) };
            match decision.phase {
                Phase::Metadata => self.metadata(ticket).as_ref() == Some(decision),
                Phase::Content => self.content(ticket).decision == *decision,
            }
        })
    }
}

impl World {
    /// The shell adds to a runner's words what the policy says of results at once.
    pub(crate) fn look_at_metadata(&mut self, words: &mut [FromRunner]) {
        for word in words {
            let RunnerWord::Ended { ticket, outcome, .. } = &mut word.word else { continue };
            if outcome.end == model::job::End::Succeeded {
                outcome.policy = self.scanner.metadata(*ticket).map(Box::new);
                if outcome.policy.is_some() {
                    self.coverage.note("results decided about at once");
                }
            }
        }
    }

    /// A shard wants a result looked at; the answer comes late, twice or never.
    pub(crate) fn scan_output(&mut self, shard: usize, ticket: Ticket) {
        if self.is_unscanned() {
            return;
        }
        let outputs = self.plan.outputs;
        if self.rng.chance(outputs.unanswered) {
            self.coverage.fault(Fault::ScanUnanswered);
            return;
        }
        let fails = self.rng.chance(outputs.fail);
        if fails {
            self.coverage.fault(Fault::ScanFailed);
            self.scanner.failed.insert(ticket);
        }
        for delay in self.message_delays() {
            let slow = self.rng.chance(outputs.slow);
            if slow {
                self.coverage.fault(Fault::ScanSlow);
            }
            let delay = if slow { self.rng.between(SECOND, 40 * SECOND) } else { delay };
            let inbound = if fails {
                Inbound::ScanFailed { ticket }
            } else {
                Inbound::Scanned { ticket, scan: Box::new(self.scanner.content(ticket)) }
            };
            self.after(delay, Event::Deliver { shard, inbound });
        }
    }

    /// A look at a result that was shown, although nobody asked for one.
    pub(crate) fn scan_some_result(&mut self) {
        let known = self.ledger.jobs.values().filter(|known| known.record.state == State::Succeeded);
        let results: Vec<Ticket> =
            known.map(|known| Ticket { job: known.record.id, attempt: known.record.attempt }).collect();
        if let Some(ticket) = self.rng.pick(&results).copied() {
            self.coverage.fault(Fault::ScanUnasked);
            let shard = usize::from(self.plan.shards.owner(ticket.job.slot()).0);
            let scan = Box::new(self.scanner.content(ticket));
            for delay in self.message_delays() {
                let inbound = Inbound::Scanned { ticket, scan: scan.clone() };
                self.after(delay, Event::Deliver { shard, inbound });
            }
        }
    }
}
