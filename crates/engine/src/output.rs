//! The output policy: results are scanned before or after they are shown, as configured for their topic.

use std::collections::{BTreeMap, VecDeque};

use model::batch::Keyspace;
use model::codec::DecodeError;
use model::id::{Attempt, JobId};
use model::job::{End, Outcome, Scan};
use model::machine::{Event, UNCHECKED_RULE, is_given_up};
use model::message::AttemptRef;
use model::spec::decode_topic;
use model::time::Millis;
use model::verdict::{OutputDecision, OutputVerdict, Phase};

use crate::anomaly::Anomaly;
use crate::input::Effect;
use crate::operations::Operation;
use crate::settings::{FailMode, OutputRules, Settings};
use crate::shard::Shard;
use crate::step::Step;

/// A scan without an answer is requested again after this time.
const SCAN_TIMEOUT: Millis = Millis::from_secs(120);

/// Open scans of results that are already shown. Each has a marker on disk.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    /// Request times, oldest first. Answered scans are skipped when they come up.
    requested: VecDeque<(Millis, JobId)>,
    open: BTreeMap<JobId, Attempt>,
    /// Whether the results of any topic are scanned. If not, topics need not be decoded.
    any_topic: bool,
}

impl Scans {
    pub fn new(settings: &Settings) -> Self {
        Self { any_topic: settings.scans_outputs(), ..Self::default() }
    }

    fn request(&mut self, now: Millis, job: JobId, attempt: Attempt, step: &mut Step) {
        self.open.insert(job, attempt);
        self.requested.push_back((now, job));
        step.effects.push(Effect::ScanOutput { job, attempt });
    }

    pub fn apply_settings(&mut self, settings: &Settings) {
        self.any_topic = settings.scans_outputs();
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn next(&self) -> Option<Millis> {
        self.requested.front().map(|(at, _)| *at + SCAN_TIMEOUT)
    }
}

impl Shard {
    fn output_rules(&self, id: JobId) -> OutputRules {
        if !self.scans.any_topic {
            return OutputRules::OFF;
        }
        let topic = self.jobs.get(id).and_then(|entry| decode_topic(&entry.job.spec).ok());
        topic.and_then(|topic| self.settings.topic(topic)).map_or(OutputRules::OFF, |topic| topic.output)
    }

    /// Sets the output rules of a job whose attempt has ended.
    fn note_output_rules(&mut self, attempt_ref: AttemptRef, outcome: &Outcome) {
        let rules = self.output_rules(attempt_ref.job);
        if let Some(entry) = self.jobs.get_mut(attempt_ref.job)
            && entry.job.attempt == attempt_ref.attempt
            && (entry.job.state.is_on_runner() || is_given_up(&entry.job, attempt_ref.attempt))
        {
            let scan_after = rules.scan && outcome.end == End::Succeeded;
            entry.set_output_policy(rules.scan && rules.hold_until_scanned, scan_after);
        }
    }

    /// Applies the end of an attempt, with the result of the metadata check.
    pub(crate) fn ended(&mut self, attempt_ref: AttemptRef, outcome: Box<Outcome>, step: &mut Step) {
        self.note_output_rules(attempt_ref, &outcome);
        let decision = outcome.policy.clone();
        let fired = self.fire(attempt_ref.job, Event::Ended { attempt: attempt_ref.attempt, outcome }, step);
        if let (Ok(_), Some(decision)) = (fired, decision) {
            self.audit_output(attempt_ref.job, &decision, true, step);
        }
    }

    /// Requests the scan of a withheld result. Repeated until there is an answer.
    pub(crate) fn request_scan(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "request scan");
        };
        entry.take_scan_after();
        self.timers.wake(entry, self.now + SCAN_TIMEOUT);
        step.effects.push(Effect::ScanOutput { job: id, attempt: entry.job.attempt });
    }

    /// Opens the scan of a result that is already shown. The marker is committed together with the job's end.
    pub(crate) fn mark_scan(&mut self, id: JobId, attempt: Attempt, step: &mut Step) {
        step.batch.put(Keyspace::Scans, &id.key(), &attempt.0.to_be_bytes());
        let now = self.now;
        self.scans.request(now, id, attempt, step);
    }

    /// Restores the marker of an open scan. Call it before [`Shard::resume`].
    pub fn restore_scan(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        let id = JobId::from_key(key).ok_or(DecodeError::Truncated)?;
        let attempt = value.try_into().map_err(|_| DecodeError::Truncated)?;
        self.scans.open.insert(id, Attempt(u32::from_be_bytes(attempt)));
        Ok(())
    }

    pub(crate) fn resume_scans(&mut self, step: &mut Step) {
        for (id, attempt) in self.scans.open.clone() {
            let now = self.now;
            self.scans.request(now, id, attempt, step);
        }
    }

    /// Repeats unanswered scan requests, a bounded number at a time.
    pub(crate) fn check_scans(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            let Some((at, id)) = self.scans.requested.front().copied() else { break };
            let open = self.scans.open.get(&id).copied();
            if open.is_some() && at + SCAN_TIMEOUT > self.now {
                break;
            }
            self.scans.requested.pop_front();
            if let Some(attempt) = open {
                self.stats.replayed += 1;
                let now = self.now;
                self.scans.request(now, id, attempt, step);
            }
        }
    }

    /// Closes a scan, whatever its verdict.
    pub(crate) fn close_scan(&mut self, id: JobId, step: &mut Step) {
        if self.scans.open.remove(&id).is_some() {
            step.batch.delete(Keyspace::Scans, &id.key());
        }
    }

    pub(crate) fn scanned(&mut self, id: JobId, attempt: Attempt, scan: Box<Scan>, step: &mut Step) {
        self.operate(None, id, None, Operation::Scanned { attempt, scan }, step);
    }

    /// The scan failed. The fail mode of the topic decides whether the result passes.
    pub(crate) fn scan_failed(&mut self, id: JobId, attempt: Attempt, message: String, step: &mut Step) {
        self.stats.scans_failed += 1;
        // A terminal job and its topic are on disk only, so this is an operation.
        self.operate(None, id, None, Operation::ScanFailed { attempt, message }, step);
    }

    /// The decision for a result that could not be scanned, by the fail mode of its topic.
    pub(crate) fn fallback_scan(&self, spec: &[u8], message: String) -> Scan {
        let topic = decode_topic(spec).ok().and_then(|topic| self.settings.topic(topic));
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
