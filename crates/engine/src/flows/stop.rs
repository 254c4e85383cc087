//! Stopping a workflow: what is live is stopped and awaited, what has not begun never will.

use model::id::WorkflowId;
use model::machine::Event;
use model::reason::{Reason, ReasonCode};
use model::state::State;
use model::workflow::{AfterStop, Place, TaskState, WorkflowState};

use super::settle::End;
use crate::shard::Shard;
use crate::step::Step;

/// How many places are told in one go.
const CHUNK: usize = 64;

impl Shard {
    /// Begins to stop a workflow. Of two wishes that differ in whether what was done is undone, that one counts.
    pub(super) fn stop(&mut self, id: WorkflowId, then: AfterStop, reason: Reason, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        match flow.record.state {
            WorkflowState::Running | WorkflowState::Paused => {
                flow.record.enter(WorkflowState::Stopping, now);
                flow.record.after_stop = Some(then);
                flow.record.reason = Some(reason);
                flow.told = Some(Place::of(0));
                flow.ready.clear();
                flow.doomed.clear();
                flow.eaching.clear();
                self.tell_flow(id, step);
                self.flows.wake(id);
                // There may be nothing to stop.
                self.check_settled(id, step);
            }
            WorkflowState::Stopping => {
                let known = flow.record.after_stop.unwrap_or(then);
                if then.rolls_back() && !known.rolls_back() {
                    let failed = known.end() == WorkflowState::Failed;
                    flow.record.after_stop =
                        Some(if failed { AfterStop::RollBackAndFail } else { AfterStop::RollBackAndCancel });
                }
            }
            WorkflowState::RollingBack
            | WorkflowState::Succeeded
            | WorkflowState::Failed
            | WorkflowState::Cancelled => {}
        }
    }

    /// Tells the next places that their workflow is being stopped.
    pub(super) fn stop_next(&mut self, id: WorkflowId, step: &mut Step) {
        for _ in 0..CHUNK {
            let Some(flow) = self.flows.map.get_mut(&id) else { return };
            let Some(place) = flow.told else { return };
            if place.task as usize >= flow.slots.len() {
                flow.told = None;
                return;
            }
            let each = flow.slots[place.task as usize].each.as_ref();
            let items = each.map_or(0, |each| each.slots.len() as u32);
            let is_live = flow.slots[place.task as usize].state.is_live();
            // A task with items is stopped by stopping those.
            let next = match place.item {
                None if items > 0 && is_live => Place::item(place.task, 0),
                Some(item) if item + 1 < items && is_live => Place::item(place.task, item + 1),
                None | Some(_) => Place::of(place.task + 1),
            };
            flow.told = Some(next);
            if place.item.is_none() && items > 0 && is_live {
                self.leave_out_items(id, place.task);
                self.close_items(id, place.task, step);
            } else {
                self.stop_place(id, place, step);
            }
            if self.is_full(step) {
                return;
            }
        }
    }

    /// A task none of whose items is live or to come has ended.
    fn close_items(&mut self, id: WorkflowId, task: u32, step: &mut Step) {
        let each = self.flows.map.get(&id).and_then(|flow| flow.slots[task as usize].each.as_ref());
        if each.is_some_and(|each| each.left == 0) {
            let end = End::bare(TaskState::Cancelled, Reason::new(ReasonCode::WorkflowStopped));
            self.settle(id, Place::of(task), end, step);
        }
    }

    fn stop_place(&mut self, id: WorkflowId, place: Place, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id) else { return };
        let row = flow.row(place);
        let (job, child) = (row.and_then(|row| row.job), row.and_then(|row| row.child));
        match flow.state(place) {
            TaskState::Running => match (job, child) {
                (Some(job), _) => {
                    // What has run to its end and is only looked at is not stopped any more.
                    let scanning = self.jobs.get(&job).is_some_and(|entry| entry.job.state == State::Scanning);
                    if !scanning {
                        let _ = self.fire(job, Event::Cancel(ReasonCode::WorkflowStopped), step);
                    }
                }
                (None, Some(child)) => {
                    self.stop(child, AfterStop::Cancelled, Reason::new(ReasonCode::WorkflowStopped), step);
                }
                (None, None) => {}
            },
            TaskState::Waiting | TaskState::Sleeping | TaskState::Listening | TaskState::Merged => {
                self.settle(id, place, End::bare(TaskState::Cancelled, Reason::new(ReasonCode::WorkflowStopped)), step);
            }
            TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Quarantined => {}
        }
    }
}
