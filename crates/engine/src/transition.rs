//! The one place where a job changes: record, indexes, counters, timers and effects move together.

use model::change::Change;
use model::id::{JobId, QueueId, RunnerId};
use model::machine::{self, Event, Ignored, Transition};
use model::message::{Ticket, ToRunner};
use model::state::State;

use crate::backlog::record_bytes;
use crate::input::Effect;
use crate::ready::Gate;
use crate::shard::{Decided, Entry, Shard};
use crate::stats::count_transition;
use crate::step::Step;

/// What a transition means for the runner that has the attempt in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    /// Nothing: none had it, or it keeps it.
    Same,
    /// It said that it has let go, or it is gone.
    Free,
    /// It has not said so yet: its slot is taken until it does.
    Lingers,
}

fn hand(event: &Event, from: State, to: State) -> Hand {
    if !from.is_on_runner() || to.is_on_runner() {
        return Hand::Same;
    }
    match event {
        Event::Ended { .. } | Event::Lost { .. } => Hand::Free,
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
        | Event::Abandon => Hand::Lingers,
    }
}

impl Shard {
    /// Lets `event` happen to a job in memory. An ignored event is counted and changes nothing.
    pub(crate) fn fire(&mut self, id: JobId, event: Event, step: &mut Step) -> Result<State, Ignored> {
        let Some(mut entry) = self.jobs.get_mut(&id) else {
            return Err(self.ignore(Ignored::Terminal));
        };
        if let Some(Decided::Adopt(incarnation)) = entry.decided {
            // Whatever happens to it happens in the hands of the runner that has it.
            self.adopt(id, incarnation, step);
            match self.jobs.get_mut(&id) {
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
        // Without a runner that could take it, it stays where it is and looks again.
        let stays_in_line = matches!(event, Event::Unplaced { until: Some(_), .. });
        if entry.in_ready && !stays_in_line {
            entry.in_ready = false;
            self.ready.remove(&entry.job, entry.ask);
        }
        self.timers.disarm(&entry.job, &self.config);
        self.timers.let_sleep(entry);
        let hand = hand(&event, from, to);
        // After the change the job no longer says which runner had it.
        let runner = entry.job.runner();
        let ticket = Ticket { job: id, attempt: entry.job.attempt };
        let result_bytes = match &event {
            Event::Ended { outcome, .. } => outcome.record_bytes(),
            _ => 0,
        };
        let redacts = matches!(&event, Event::Scanned { scan, .. } if scan.redacted.is_some());
        entry.job.apply(self.now, event, &transition, self.config.retry_backoff);
        if entry.job.origin.is_some() && to.is_terminal() && (from != to || redacts) {
            self.flows.news.push_back(id);
        }
        count_transition(&mut self.stats, &mut self.ready.asks, entry, from, self.now);
        self.timers.arm(&entry.job, &self.config);
        if entry.job.retracting {
            self.timers.wake(entry, self.now + self.config.stop_timeout);
        }
        if !to.is_on_runner() {
            entry.decided = None;
        }
        if !entry.dirty {
            entry.dirty = true;
            self.dirty_jobs.push(id);
            self.dirty_bytes += record_bytes(&entry.job);
        }
        self.dirty_bytes += result_bytes;
        let (queue, lane) = (entry.job.queue, entry.job.lane);
        announce(entry, from, &transition, step);
        if from.is_on_runner() != to.is_on_runner() || to.is_terminal() {
            self.change_hands(id, runner.map(|(runner, _)| runner));
        }
        if let Some((runner_id, incarnation)) = runner {
            if transition.stop {
                let message = ToRunner::Stop { ticket };
                step.effects.push(Effect::Send { runner: runner_id, incarnation, message });
            }
            match hand {
                Hand::Same => {}
                Hand::Free => self.free_slot(runner_id, incarnation, lane),
                Hand::Lingers => self.keep_slot(runner_id, incarnation, ticket, lane),
            }
        }
        if let Some(ended_at) = ended_at {
            self.count_returning(queue, from, ended_at);
        }
        self.recount_queue(queue, id, from, to);
        self.follow_up(id, to, step);
        Ok(to)
    }

    /// A job has gone to a runner, has left the one it had, or has ended: whatever is counted by runner, tenant or rule
    /// follows.
    fn change_hands(&mut self, id: JobId, from: Option<RunnerId>) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        match (from, entry.job.runner()) {
            (None, Some((runner, _))) => {
                self.runners.hand_over(runner, id);
                self.ready.shift_running(&entry.job, true);
            }
            (Some(runner), None) => {
                self.runners.hand_back(runner, id);
                self.ready.shift_running(&entry.job, false);
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        if entry.job.state.is_terminal()
            && let Some(ask) = entry.ask.take()
        {
            self.ready.leave_ask(ask);
        }
    }

    fn ignore(&mut self, why: Ignored) -> Ignored {
        self.stats.ignored[why as usize] += 1;
        why
    }

    /// What a state asks for as soon as it is entered.
    fn follow_up(&mut self, id: JobId, state: State, step: &mut Step) {
        match state {
            State::Pending => self.ask_policy(id, step),
            State::Scheduled => self.make_ready(id, step),
            State::Scanning => self.ask_scan(id, step),
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

    /// Keeps the queue's counters in step with its jobs.
    fn recount_queue(&mut self, queue: QueueId, job: JobId, from: State, to: State) {
        let Some(entry) = self.queues.get_mut(&queue) else { return };
        match (from.is_on_runner(), to.is_on_runner()) {
            (false, true) => entry.on_runner += 1,
            (true, false) => {
                entry.on_runner -= 1;
                if entry.queue.max_running.is_some() {
                    self.ready.unpark(&Gate::Queue(queue));
                }
            }
            (true, true) | (false, false) => {}
        }
        if from.is_terminal() == to.is_terminal() && !to.is_terminal() {
            return;
        }
        entry.queue.counters.shift(from, to);
        let left = to.is_terminal() && entry.active.remove(&job);
        if !to.is_terminal() {
            entry.active.insert(job);
        }
        if entry.active.is_empty() {
            entry.queue.idle_since = self.now;
            self.timers.arm_expiry(entry, &self.config);
        }
        if !entry.dirty {
            entry.dirty = true;
            self.dirty_queues.push(queue);
        }
        if left {
            self.dismiss(queue);
        }
    }
}

/// Tells subscribers of a state that was entered.
fn announce(entry: &Entry, from: State, transition: &Transition, step: &mut Step) {
    if transition.to == from {
        return;
    }
    let job = &entry.job;
    step.tell(&Change::Job {
        id: job.id,
        queue: job.queue,
        state: job.state,
        attempt: job.attempt,
        at: job.since(),
        reason: job.reason.as_ref().map(|reason| reason.code),
    });
}
