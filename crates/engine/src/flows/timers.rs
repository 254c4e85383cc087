//! The timers of workflows, derived from their rows: every delay its own, past-due ones fire at start, none twice, none
//! early.

use model::id::{ScheduleId, WorkflowId};
use model::reason::{Reason, ReasonCode};
use model::time::Millis;
use model::workflow::{AfterStop, NoteKind, Place, TaskState};
use workflow::plan::OnFailure;

use super::Flows;
use super::settle::End;
use crate::shard::Shard;
use crate::step::Step;

/// What is to happen at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FlowTimer {
    /// A delay is over, or a signal has not come in time.
    Place(WorkflowId, Place),
    /// The workflow as a whole has taken too long.
    Deadline(WorkflowId),
    /// The next slot of a schedule, or the next look at one that could not be started.
    Schedule(ScheduleId),
}

impl Flows {
    pub(super) fn arm_place(&mut self, at: Millis, id: WorkflowId, place: Place) {
        self.timers.insert((at, FlowTimer::Place(id, place)));
    }

    pub(super) fn disarm_place(&mut self, at: Millis, id: WorkflowId, place: Place) {
        self.timers.remove(&(at, FlowTimer::Place(id, place)));
    }

    pub(super) fn arm_deadline(&mut self, at: Millis, id: WorkflowId) {
        self.timers.insert((at, FlowTimer::Deadline(id)));
    }

    pub(super) fn disarm_deadline(&mut self, at: Millis, id: WorkflowId) {
        self.timers.remove(&(at, FlowTimer::Deadline(id)));
    }

    pub(super) fn arm_schedule(&mut self, at: Millis, id: ScheduleId) {
        self.timers.insert((at, FlowTimer::Schedule(id)));
    }

    pub(super) fn disarm_schedule(&mut self, at: Millis, id: ScheduleId) {
        self.timers.remove(&(at, FlowTimer::Schedule(id)));
    }
}

impl Shard {
    /// Fires the timers of workflows that are due, a bounded number of them.
    pub(crate) fn tick_flows(&mut self, step: &mut Step) {
        self.look_at_starved();
        for _ in 0..self.config.timers_per_step {
            if self.is_full(step) {
                break;
            }
            let Some((at, timer)) = self.flows.timers.first().copied().filter(|(at, _)| *at <= self.now) else { break };
            self.flows.timers.remove(&(at, timer));
            self.stats.flows.timers_fired += 1;
            match timer {
                FlowTimer::Place(id, place) => self.place_due(id, place, step),
                FlowTimer::Deadline(id) => self.deadline_passed(id, step),
                FlowTimer::Schedule(id) => self.schedule_due(id, step),
            }
        }
        self.sweep_flows(step);
    }

    fn place_due(&mut self, id: WorkflowId, place: Place, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id) else { return };
        match flow.state(place) {
            TaskState::Sleeping => self.settle(id, place, End::of(TaskState::Succeeded), step),
            TaskState::Listening => {
                let reason = Reason::with(ReasonCode::TaskTimedOut, "the signal did not come in time");
                self.settle(id, place, End::bare(TaskState::Failed, reason), step);
            }
            TaskState::Waiting
            | TaskState::Running
            | TaskState::Merged
            | TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Quarantined => {}
        }
    }

    fn deadline_passed(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id).filter(|flow| flow.is_going()) else { return };
        // Whoever wants failures undone wants this one undone, too.
        let undoes = flow.plan.tasks.iter().any(|task| task.on_failure == OnFailure::Compensate);
        let then = if undoes { AfterStop::RollBackAndFail } else { AfterStop::Failed };
        self.note_flow(id, NoteKind::TimedOut, None, None, None);
        let reason = Reason::with(ReasonCode::WorkflowTimedOut, "it had not ended in the time it may take");
        self.stop(id, then, reason, step);
    }
}
