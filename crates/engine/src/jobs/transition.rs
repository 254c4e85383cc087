//! The one place where a job changes. Record, indexes, counters, timers and effects move together.

use model::change::Change;
use model::id::{JobId, QueueId, RunnerId};
use model::job::Job;
use model::machine::{self, Event, Ignored};
use model::message::{AttemptRef, ShardMessage};
use model::state::State;

use super::PendingDecision;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::stats::count_transition;
use crate::step::Step;
use crate::timers::limit;

/// What a transition does to the runner's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotEffect {
    /// No runner had the attempt, or it keeps it.
    Unchanged,
    /// The runner reported the end, or is gone.
    Freed,
    /// The runner has not confirmed the stop: the slot stays taken until it does.
    Lingers,
}

fn slot_effect(event: &Event, from: State, to: State) -> SlotEffect {
    if !from.is_on_runner() || to.is_on_runner() {
        return SlotEffect::Unchanged;
    }
    match event {
        Event::Ended { .. } | Event::Lost { .. } => SlotEffect::Freed,
        Event::Due
        | Event::Verdict(_)
        | Event::Approval(_)
        | Event::Dispatch { .. }
        | Event::Adopted { .. }
        | Event::Started { .. }
        | Event::Cancel(_)
        | Event::Retract
        | Event::DeadlinePassed
        | Event::AttemptTimedOut { .. }
        | Event::DispatchTimedOut { .. }
        | Event::StopOverdue { .. }
        | Event::PolicyUnavailable { .. }
        | Event::Recheck
        | Event::ApprovalExpired
        | Event::Unrunnable { .. }
        | Event::Unplaced { .. }
        | Event::Scanned { .. }
        | Event::Release
        | Event::Reschedule
        | Event::Refund { .. }
        | Event::Abandon => SlotEffect::Lingers,
    }
}

impl Shard {
    /// Applies `event` to a job in memory. An ignored event is counted and changes nothing.
    pub(crate) fn fire(&mut self, id: JobId, event: Event, step: &mut Step) -> Result<State, Ignored> {
        let Some(mut entry) = self.jobs.live.get_mut(&id) else {
            return Err(self.ignore(Ignored::Terminal));
        };
        if let Some(PendingDecision::Adopt(incarnation)) = entry.pending {
            // The record must name the adopting incarnation before anything else happens to the attempt.
            self.adopt(id, incarnation, step);
            match self.jobs.live.get_mut(&id) {
                Some(adopted) => entry = adopted,
                None => return Err(self.ignore(Ignored::Terminal)),
            }
        }
        let transition = match machine::step(&entry.job, &event) {
            Ok(transition) => transition,
            Err(why) => return Err(self.ignore(why)),
        };
        let (from, to) = (entry.job.state, transition.to);
        let ended_at = entry.job.ended_at();
        // A job without an eligible runner stays in the ready queue and is checked again.
        let stays_queued = matches!(event, Event::Unplaced { until: Some(_), .. });
        if entry.is_ready && !stays_queued {
            entry.is_ready = false;
            self.ready.remove(&entry.job, entry.requirement);
        }
        self.timers.disarm(entry, &self.config);
        self.timers.cancel_wake(entry);
        let slot = slot_effect(&event, from, to);
        // After the change the record no longer names the runner.
        let runner = entry.job.runner();
        let attempt_ref = AttemptRef { job: id, attempt: entry.job.attempt };
        let result_bytes = match &event {
            Event::Ended { outcome, .. } => outcome.record_bytes(),
            _ => 0,
        };
        let is_unconfirmed = match &event {
            Event::Ended { .. } => false,
            Event::Lost { is_gone, .. } => !is_gone,
            _ => true,
        };
        let redacts = matches!(&event, Event::Scanned { scan, .. } if scan.redacted.is_some());
        entry.job.0.apply(self.now, event, &transition, self.config.retry_backoff);
        if entry.job.origin.is_some() && to.is_terminal() && (from != to || redacts) {
            self.workflows.note_job_update(id);
        }
        count_transition(&mut self.stats, &mut self.ready, &entry.job, entry.requirement, from, self.now);
        if from != to {
            entry.set_limit_at(limit(&entry.job, &self.config).map(|limit| self.steady + limit));
        }
        self.timers.arm(entry, &self.config);
        if !to.is_on_runner() {
            entry.pending = None;
        }
        if !entry.dirty {
            entry.dirty = true;
            self.jobs.dirty.push(id);
            self.backlog.add_written(entry.job.record_bytes());
        }
        self.backlog.add_written(result_bytes);
        let (queue, executor) = (entry.job.queue, entry.job.executor);
        let is_of_workflow = entry.job.origin.is_some();
        let is_exclusive = entry.job.exclusive;
        announce(&entry.job, from, step);
        if from.is_on_runner() != to.is_on_runner() || to.is_terminal() {
            self.change_assignment(id, runner.map(|(runner, _)| runner));
        }
        if is_exclusive {
            self.hold_exclusive(id, from, is_unconfirmed);
        }
        if let Some((runner_id, incarnation)) = runner {
            if transition.stop {
                self.send_to_runner(runner_id, incarnation, ShardMessage::Stop { attempt_ref }, step);
            }
            match slot {
                SlotEffect::Unchanged => {}
                SlotEffect::Freed => self.free_slot(runner_id, incarnation, executor),
                SlotEffect::Lingers => {
                    self.mark_lingering(runner_id, incarnation, attempt_ref, executor);
                    if is_of_workflow {
                        self.note_unconfirmed(attempt_ref, runner_id, incarnation);
                    }
                }
            }
        }
        if let Some(ended_at) = ended_at {
            self.queues.count_reopened(queue, from, ended_at);
        }
        self.count_in_queue(queue, id, from, to);
        self.follow_up(id, to, step);
        Ok(to)
    }

    /// Updates what is counted per runner, tenant and rule when a job is dispatched, leaves its runner, or ends.
    fn change_assignment(&mut self, id: JobId, from: Option<RunnerId>) {
        let Some(entry) = self.jobs.live.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "change assignment");
        };
        match (from, entry.job.runner()) {
            (None, Some((runner, _))) => {
                self.runners.assign(runner, id);
                if entry.job.exclusive {
                    self.exclusive.note_dispatched(runner, id);
                }
                self.ready.shift_running(&entry.job, true);
            }
            (Some(runner), None) => {
                self.runners.unassign(runner, id);
                if entry.job.exclusive {
                    self.exclusive.note_left(runner, id);
                }
                self.ready.shift_running(&entry.job, false);
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        if entry.job.state.is_terminal()
            && let Some(requirement) = entry.requirement.take()
        {
            self.ready.leave_requirement(requirement);
        }
    }

    pub(crate) fn ignore(&mut self, why: Ignored) -> Ignored {
        self.stats.ignored[why as usize] += 1;
        why
    }

    /// What entering a state requires at once.
    fn follow_up(&mut self, id: JobId, state: State, step: &mut Step) {
        match state {
            State::Pending => self.check_policy(id, step),
            State::Scheduled => self.make_ready(id, step),
            State::Scanning => self.request_scan(id, step),
            State::Succeeded
            | State::Failed
            | State::TimedOut
            | State::Cancelled
            | State::Denied
            | State::Quarantined
            | State::Abandoned
            | State::Blocked
            | State::ApprovalRequired
            | State::Dispatched
            | State::Running
            | State::Cancelling => {}
        }
    }

    /// Updates the counters of the job's queue.
    fn count_in_queue(&mut self, queue: QueueId, job: JobId, from: State, to: State) {
        let Some(counted) = self.queues.count_transition(queue, job, from, to, self.clocks()) else {
            // The queue of a terminal job may have expired.
            if !from.is_terminal() {
                self.anomalies.note(Anomaly::MissingQueue(queue), "count a transition");
            }
            return;
        };
        if counted.freed_slot {
            self.ready.unpark_queue(queue);
        }
        if counted.became_idle {
            self.arm_expiry(queue);
        }
        if counted.job_left {
            self.release_tenant_slot(queue);
        }
    }
}

/// Notifies subscribers of a state that was entered.
fn announce(job: &Job, from: State, step: &mut Step) {
    if job.state == from {
        return;
    }
    step.announce(&Change::Job {
        id: job.id,
        queue: job.queue,
        state: job.state,
        attempt: job.attempt,
        at: job.since(),
        reason: job.reason.as_ref().map(|reason| reason.code),
    });
}
