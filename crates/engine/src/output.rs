//! The gate on the way out: results are looked at before or after they are shown, as their topic says.

use std::collections::{BTreeMap, VecDeque};

use model::batch::Keyspace;
use model::codec::DecodeError;
use model::id::{Attempt, JobId};
use model::job::{End, Outcome, Scan};
use model::machine::{Event, UNCHECKED_RULE};
use model::message::Ticket;
use model::spec::decode_topic;
use model::time::Millis;
use model::verdict::{OutputDecision, OutputVerdict, Phase};

use crate::input::Effect;
use crate::operate::Operation;
use crate::setup::{FailMode, OutputRules};
use crate::shard::Shard;
use crate::step::Step;

/// How long the scan's answer is waited for before it is asked for again.
const SCAN_PATIENCE: Millis = Millis::from_secs(120);

/// Results that were shown and are still to be scanned. Their markers on disk say the same.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    /// When each was asked for, oldest first. Those that were answered meanwhile are skipped.
    asked: VecDeque<(Millis, JobId)>,
    open: BTreeMap<JobId, Attempt>,
}

impl Scans {
    fn ask(&mut self, now: Millis, job: JobId, attempt: Attempt, step: &mut Step) {
        self.open.insert(job, attempt);
        self.asked.push_back((now, job));
        step.effects.push(Effect::ScanOutput { job, attempt });
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn next(&self) -> Option<Millis> {
        self.asked.front().map(|(at, _)| *at + SCAN_PATIENCE)
    }
}

impl Shard {
    fn output_rules(&self, id: JobId) -> OutputRules {
        if !self.scans_outputs {
            return OutputRules::OFF;
        }
        let topic = self.jobs.get(&id).and_then(|entry| decode_topic(&entry.job.spec).ok());
        topic.and_then(|topic| self.setup.topic(topic)).map_or(OutputRules::OFF, |topic| topic.output)
    }

    /// An attempt has ended: says of its job what is to become of the result.
    fn note_output_rules(&mut self, ticket: Ticket, outcome: &Outcome) {
        let rules = self.output_rules(ticket.job);
        if let Some(entry) = self.jobs.get_mut(&ticket.job)
            && entry.job.attempt == ticket.attempt
            && entry.job.state.is_on_runner()
        {
            entry.job.hold_until_scanned = rules.scan && rules.hold_until_scanned;
            entry.scan_after = rules.scan && outcome.end == End::Succeeded;
        }
    }

    /// The end of an attempt, with what the policy has said of its result so far.
    pub(crate) fn ended(&mut self, ticket: Ticket, outcome: Box<Outcome>, step: &mut Step) {
        self.note_output_rules(ticket, &outcome);
        let decision = outcome.policy.clone();
        let fired = self.fire(ticket.job, Event::Ended { attempt: ticket.attempt, outcome }, step);
        if let (Ok(_), Some(decision)) = (fired, decision) {
            self.note_output(ticket.job, &decision, true, step);
        }
    }

    /// Asks for a look at a held result, now and again until there is an answer.
    pub(crate) fn ask_scan(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.scan_after = false;
        self.timers.wake(entry, self.now + SCAN_PATIENCE);
        step.effects.push(Effect::ScanOutput { job: id, attempt: entry.job.attempt });
    }

    /// A result was shown and is to be scanned: that is durable together with its job's end.
    pub(crate) fn mark_scan(&mut self, id: JobId, attempt: Attempt, step: &mut Step) {
        step.batch.put(Keyspace::Scans, &id.key(), &attempt.0.to_be_bytes());
        let now = self.now;
        self.scans.ask(now, id, attempt, step);
    }

    /// Puts back the marker of a result that is still to be scanned. Before the shard is resumed.
    pub fn restore_scan(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        let id = JobId::from_key(key).ok_or(DecodeError::Truncated)?;
        let attempt = value.try_into().map_err(|_| DecodeError::Truncated)?;
        self.scans.open.insert(id, Attempt(u32::from_be_bytes(attempt)));
        Ok(())
    }

    pub(crate) fn resume_scans(&mut self, step: &mut Step) {
        for (id, attempt) in self.scans.open.clone() {
            let now = self.now;
            self.scans.ask(now, id, attempt, step);
        }
    }

    /// Asks again for scans that have not been answered, a bounded number at a time.
    pub(crate) fn check_scans(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            let Some((at, id)) = self.scans.asked.front().copied() else { break };
            let open = self.scans.open.get(&id).copied();
            if open.is_some() && at + SCAN_PATIENCE > self.now {
                break;
            }
            self.scans.asked.pop_front();
            if let Some(attempt) = open {
                self.stats.replayed += 1;
                let now = self.now;
                self.scans.ask(now, id, attempt, step);
            }
        }
    }

    /// The scan is done with a result, whatever it said.
    pub(crate) fn close_scan(&mut self, id: JobId, step: &mut Step) {
        if self.scans.open.remove(&id).is_some() {
            step.batch.delete(Keyspace::Scans, &id.key());
        }
    }

    pub(crate) fn scanned(&mut self, id: JobId, attempt: Attempt, scan: Box<Scan>, step: &mut Step) {
        self.operate(None, id, Operation::Scanned { attempt, scan, checked: true }, step);
    }

    /// The result could not be looked at: its topic says whether it passes all the same.
    pub(crate) fn scan_failed(&mut self, id: JobId, attempt: Attempt, message: String, step: &mut Step) {
        self.stats.scans_failed += 1;
        // A job that is terminal already is on disk only, and its topic with it.
        self.operate(None, id, Operation::ScanFailed { attempt, message }, step);
    }

    /// What the fail mode of a job's topic makes of a result that could not be looked at.
    pub(crate) fn unchecked(&self, spec: &[u8], message: String) -> Scan {
        let topic = decode_topic(spec).ok().and_then(|topic| self.setup.topic(topic));
        let verdict = match topic.map_or(FailMode::Closed, |topic| topic.output.fail_mode) {
            FailMode::Open => OutputVerdict::Allow,
            FailMode::Closed => OutputVerdict::Quarantine,
        };
        let decision = OutputDecision {
            at: self.now,
            phase: Phase::Content,
            verdict,
            rule: UNCHECKED_RULE.to_owned(),
            message: Some(message),
            policy: None,
            findings: Vec::new(),
            attempt: Attempt::default(),
        };
        Scan { decision, redacted: None }
    }
}
