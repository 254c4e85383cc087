//! Attempts of earlier incarnations of a runner: adopted or lost.
//!
//! Processes survive a restart of their server. The registration of a new incarnation lists all attempts in flight,
//! including those dispatched to earlier incarnations. Listed attempts are **adopted**: the same attempt continues with
//! its timeouts and its slot. Unlisted attempts are lost. These decisions take effect in memory at once and reach the
//! records in steps of bounded size. A crash in between is harmless: a job whose record names an earlier incarnation is
//! an orphan, and the next registration or inventory of its runner decides about it again.

use model::audit::Action;
use model::id::{Incarnation, JobId, NodeId, RunnerId};
use model::job::Job;
use model::machine::{Event, Fault};
use model::message::{AttemptRef, RunnerCursor};

use crate::anomaly::Anomaly;
use crate::jobs::PendingDecision;
use crate::runners::Runner;
use crate::shard::Shard;
use crate::step::Step;

/// The fault of an attempt that was lost together with its runner.
fn fault_when_lost(job: &Job) -> Fault {
    if job.executor.restarts_free_of_charge() { Fault::NotTheJob } else { Fault::Unknown }
}

/// Message of the audit entry of an attempt that is taken back because its node is drained or given up.
pub fn drained_message(node: NodeId) -> String {
    format!("{node} is drained")
}

/// Message of the audit entry of a job that ends because its node is given up.
pub fn abandoned_message(node: NodeId) -> String {
    format!("{node} is abandoned")
}

impl Shard {
    /// Adds a new runner or a new incarnation. Attempts of earlier incarnations stay undecided until it registers, even
    /// if other messages arrive first.
    pub(crate) fn admit_incarnation(&mut self, id: RunnerId, incarnation: Incarnation) {
        let session = self.new_session();
        self.put_runner(id, Runner::new(RunnerCursor { incarnation, sequence: 0 }, session, self.steady));
    }

    /// Decides about all attempts dispatched to earlier incarnations of a runner. `in_flight` is sorted.
    pub(crate) fn decide_orphans(&mut self, id: RunnerId, incarnation: Incarnation, in_flight: &[AttemptRef]) {
        let mut adopted = Vec::new();
        for job in self.on_runner(id, |assigned_incarnation| assigned_incarnation < incarnation) {
            let Some(entry) = self.jobs.get_mut(job) else {
                self.anomalies.note(Anomaly::MissingJob(job), "decide orphans");
                continue;
            };
            let attempt_ref = AttemptRef { job, attempt: entry.job.attempt };
            if in_flight.binary_search(&attempt_ref).is_err() {
                let fault = fault_when_lost(&entry.job);
                self.declare_lost(job, fault, true);
                continue;
            }
            entry.set_pending(Some(PendingDecision::Adopt(incarnation)));
            // Dispatched before any inventory request to this incarnation.
            entry.set_dispatched_after(0);
            adopted.push((entry.job.executor, attempt_ref));
            self.backlog.push_attempt(job);
        }
        let now = self.steady;
        if let Some(runner) = self.runner_mut(id) {
            runner.is_unregistered = false;
            for (executor, attempt_ref) in adopted {
                runner.take(executor, attempt_ref, now);
            }
            self.runner_changed_by_id(id);
        }
    }

    /// Decides that an attempt is lost. The decision is dropped if the job changes state before it is applied. `is_gone`:
    /// the runner has reported that it does not have the attempt.
    pub(crate) fn declare_lost(&mut self, id: JobId, fault: Fault, is_gone: bool) {
        let Some(entry) = self.jobs.get_mut(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "declare lost");
        };
        let (before, assignment, executor) = (entry.pending(), entry.assignment(), entry.job.executor);
        entry.set_pending(Some(PendingDecision::Lose { fault, is_gone }));
        self.backlog.push_attempt(id);
        if let (Some(PendingDecision::Adopt(_)), Some((runner, incarnation))) = (before, assignment) {
            // The record still names an earlier incarnation, and the loss will too: free the slot of this incarnation.
            self.free_slot(runner, incarnation, executor);
        }
    }

    /// The runner is lost, and all its attempts in flight.
    pub(crate) fn runner_lost(&mut self, id: RunnerId, incarnation: Incarnation, step: &mut Step) {
        let (session, now) = (self.new_session(), self.steady);
        if let Some(runner) = self.runner_mut(id) {
            if runner.incarnation > incarnation {
                // A newer incarnation has connected. Its registration decides about the older attempts.
                return;
            }
            runner.close(session, now);
            self.runner_changed_by_id(id);
        }
        for job in self.on_runner(id, |assigned_incarnation| assigned_incarnation <= incarnation) {
            let Some(entry) = self.jobs.get(job) else {
                self.anomalies.note(Anomaly::MissingJob(job), "runner lost");
                continue;
            };
            let fault = fault_when_lost(&entry.job);
            self.declare_lost(job, fault, false);
        }
        self.confirm_lost(id, incarnation, step);
    }

    /// Ends all attempts of a runner. Retracted, their jobs go to other runners and use no retry; abandoned, their jobs
    /// end. Attempts whose fate is being decided are left out: the shell repeats the input until none is left.
    pub(crate) fn end_attempts(&mut self, id: RunnerId, decision: PendingDecision) {
        for job in self.on_runner(id, |_| true) {
            let Some(entry) = self.jobs.get_mut(job) else {
                self.anomalies.note(Anomaly::MissingJob(job), "end attempts");
                continue;
            };
            if entry.pending().is_none() && !entry.job.is_to_stop() {
                entry.set_pending(Some(decision));
                self.backlog.push_attempt(job);
            }
        }
    }

    /// Applies the pending decision about the attempt of a job, if there still is one.
    pub(crate) fn apply_pending(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get(id) else { return };
        match entry.pending() {
            None => {}
            Some(PendingDecision::Adopt(incarnation)) => self.adopt(id, incarnation, step),
            Some(PendingDecision::Lose { fault, is_gone }) => {
                let attempt = entry.job.attempt;
                let _ = self.fire(id, Event::Lost { attempt, fault, is_gone }, step);
            }
            Some(PendingDecision::Retract) => {
                let node = entry.job.runner().map(|(runner, _)| NodeId(runner.0));
                if let Some(entry) = self.jobs.get_mut(id) {
                    entry.set_pending(None);
                }
                // Ignored if the job is being cancelled.
                if self.fire(id, Event::Retract, step).is_ok() {
                    let message = node.map(drained_message);
                    self.audit_job(Action::Retracted, id, &None, message, step);
                }
            }
            Some(PendingDecision::Abandon) => {
                let node = entry.job.runner().map(|(runner, _)| NodeId(runner.0));
                if let Some(entry) = self.jobs.get_mut(id) {
                    entry.set_pending(None);
                }
                if self.fire(id, Event::Abandon, step).is_ok() {
                    self.audit_job(Action::Abandoned, id, &None, node.map(abandoned_message), step);
                }
            }
        }
    }

    /// Records the incarnation that runs the attempt.
    pub(crate) fn adopt(&mut self, id: JobId, incarnation: Incarnation, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "adopt");
        };
        entry.set_pending(None);
        let attempt = entry.job.attempt;
        if self.fire(id, Event::Adopted { attempt, incarnation }, step).is_ok() {
            self.stats.adopted += 1;
        }
    }
}
