//! Working off what there is to do for workflows, a bounded amount in each step.

use model::id::WorkflowId;
use model::reason::{Reason, ReasonCode};
use model::time::Millis;
use model::workflow::{AfterStop, NoteKind, Place, TaskState, WorkflowState};

use workflow::plan::Act;

use super::flow::Flow;
use crate::shard::Shard;
use crate::step::Step;

/// How much is done for one workflow before the next has its turn.
const TURN: usize = 256;
/// Of a list without a limit of its own so many items are under way at once: enough for any runner, and the shard does not
/// fill up with one list.
const ITEMS_AT_ONCE: u32 = 4_096;
/// How long those wait whose next job had no room.
const LOOK_AGAIN: Millis = Millis::from_secs(1);

/// One thing to do.
#[derive(Debug)]
enum Unit {
    Doom(u32, TaskState, Reason),
    /// End like the place whose result it shares.
    Share(Place),
    Begin(Place),
    /// Tell the next tasks that the workflow is being stopped.
    Stop,
    /// Undo the next step.
    Undo,
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Did {
    It,
    /// There was no room for the job; it is looked at again later.
    NoRoom,
}

impl Flow {
    /// While it is held nothing begins.
    fn next_unit(&mut self, held: bool) -> Option<Unit> {
        if let Some(place) = self.sharing.pop_front() {
            return Some(Unit::Share(place));
        }
        match self.record.state {
            WorkflowState::Running | WorkflowState::Paused => {
                if let Some((task, state, reason)) = self.doomed.pop_front() {
                    return Some(Unit::Doom(task, state, reason));
                }
                if held {
                    return None;
                }
                if let Some(task) = self.ready.pop_front() {
                    return Some(Unit::Begin(Place::of(task)));
                }
                self.next_item().map(Unit::Begin)
            }
            WorkflowState::Stopping => self.told.is_some().then_some(Unit::Stop),
            WorkflowState::RollingBack => self.undoing.is_none().then_some(Unit::Undo),
            WorkflowState::Succeeded | WorkflowState::Failed | WorkflowState::Cancelled => None,
        }
    }

    /// The next item that may begin; tasks with items take turns.
    fn next_item(&mut self) -> Option<Place> {
        while let Some(task) = self.eaching.pop_front() {
            let plan = &self.plan.tasks[task as usize];
            // Jobs that wait in line are only in the way; what merely waits for a time or a word is not.
            let most = match &plan.act {
                Act::Job(_) | Act::Workflow { .. } => Some(ITEMS_AT_ONCE),
                Act::Delay(_) | Act::Approval { .. } | Act::WaitFor { .. } | Act::Switch(_) => None,
            };
            let concurrency = plan.for_each.as_ref().and_then(|each| each.concurrency).or(most);
            let Some(each) = self.slots[task as usize].each.as_mut() else { continue };
            if !each.has_next(concurrency) {
                each.queued = false;
                continue;
            }
            let item = each.next;
            each.next += 1;
            self.eaching.push_back(task);
            return Some(Place::item(task, item));
        }
        None
    }

    /// The task may have items that may begin.
    pub fn go_on_with(&mut self, task: u32) {
        if let Some(each) = self.slots[task as usize].each.as_mut()
            && !each.queued
        {
            each.queued = true;
            self.eaching.push_back(task);
        }
    }

    /// There was no room for its job: it is the next to begin again.
    fn put_back(&mut self, place: Place) {
        match place.item {
            None => self.ready.push_front(place.task),
            Some(_) => {
                if let Some(each) = self.slots[place.task as usize].each.as_mut() {
                    each.next -= 1;
                }
            }
        }
    }
}

impl Shard {
    /// Hears what has become of jobs and sub-workflows. All of it belongs to this step's commit.
    pub(crate) fn hear_jobs(&mut self, step: &mut Step) {
        loop {
            if let Some(job) = self.flows.news.pop_front() {
                self.job_changed(job, step);
            } else if let Some(child) = self.flows.child_news.pop_front() {
                self.child_changed(child, step);
            } else {
                return;
            }
        }
    }

    /// Does as much of what there is to do for workflows as fits into this step.
    pub(crate) fn go_on_with_flows(&mut self, step: &mut Step) {
        while !self.is_full(step)
            && let Some(id) = self.flows.to_stop.pop_front()
        {
            self.note_flow(id, NoteKind::CancelRequested, None, None, Some("its queue was cancelled".to_owned()));
            self.dirty_bytes += super::flush::FLOW_BYTES;
            self.stop(id, AfterStop::Cancelled, Reason::new(ReasonCode::QueueCancelled), step);
        }
        while !self.is_full(step)
            && let Some(id) = self.flows.busy.pop_front()
        {
            if let Some(flow) = self.flows.map.get_mut(&id) {
                flow.queued = false;
                self.take_turn(id, step);
            }
            self.hear_jobs(step);
        }
        self.go_on_filing(step);
    }

    fn take_turn(&mut self, id: WorkflowId, step: &mut Step) {
        let held = self.is_held(id);
        for _ in 0..TURN {
            if self.is_full(step) {
                return self.flows.wake(id);
            }
            let Some(unit) = self.flows.map.get_mut(&id).and_then(|flow| flow.next_unit(held)) else { return };
            let did = match unit {
                Unit::Doom(task, state, reason) => {
                    self.doom(id, task, state, reason, step);
                    Did::It
                }
                Unit::Share(place) => {
                    self.share(id, place, step);
                    Did::It
                }
                Unit::Begin(place) => {
                    let did = self.begin(id, place, step);
                    if let (Did::NoRoom, Some(flow)) = (did, self.flows.map.get_mut(&id)) {
                        flow.put_back(place);
                    }
                    did
                }
                Unit::Stop => {
                    self.stop_next(id, step);
                    Did::It
                }
                Unit::Undo => self.undo_next(id, step),
            };
            // What has ended meanwhile comes first: an end may change what there is to do.
            self.hear_jobs(step);
            if did == Did::NoRoom {
                return self.starve(id);
            }
        }
        self.flows.wake(id);
    }

    /// Whether it, or anything that it is part of, is paused.
    fn is_held(&self, id: WorkflowId) -> bool {
        let mut next = Some(id);
        while let Some(flow) = next.and_then(|id| self.flows.map.get(&id)) {
            if flow.record.state == WorkflowState::Paused {
                return true;
            }
            next = flow.record.parent.map(|(parent, _)| parent);
        }
        false
    }

    /// Its next job has no room: it is looked at again in a moment.
    fn starve(&mut self, id: WorkflowId) {
        self.flows.starved.push(id);
        let again = self.now + LOOK_AGAIN;
        self.flows.look_again_at.get_or_insert(again);
    }

    pub(crate) fn look_at_starved(&mut self) {
        if self.flows.look_again_at.is_some_and(|at| at <= self.now) {
            self.wake_starved();
        }
    }

    /// There may be room now.
    pub(crate) fn wake_starved(&mut self) {
        self.flows.look_again_at = None;
        for id in std::mem::take(&mut self.flows.starved) {
            self.flows.wake(id);
        }
    }

    /// A task that will not run.
    fn doom(&mut self, id: WorkflowId, task: u32, state: TaskState, reason: Reason, step: &mut Step) {
        let waits = self.flows.map.get(&id).is_some_and(|flow| flow.slots[task as usize].state == TaskState::Waiting);
        if waits {
            self.settle(id, Place::of(task), super::settle::End::bare(state, reason), step);
        }
    }

    /// The task's needs have changed: what they mean for it, if they mean anything yet.
    pub(super) fn weigh(&mut self, id: WorkflowId, task: u32) {
        use super::flow::Fate;
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        if flow.slots[task as usize].doomed {
            return;
        }
        let name = |need: u32| flow.plan.tasks[need as usize].name.to_string();
        let doomed = match flow.fate(task) {
            Fate::Waits => return,
            Fate::Ready => {
                flow.ready.push_back(task);
                return self.flows.wake(id);
            }
            Fate::UpstreamFailed(need) => (
                TaskState::Cancelled,
                Reason::with(ReasonCode::UpstreamFailed, format!("`{}` did not succeed", name(need))),
            ),
            Fate::EpochFailed(epoch) => {
                let name = flow.plan.epochs.get(epoch as usize).map_or("", |name| &**name);
                let message = format!("the epoch `{name}` did not succeed");
                (TaskState::Cancelled, Reason::with(ReasonCode::UpstreamFailed, message))
            }
            Fate::NotChosen(need) => {
                (TaskState::Skipped, Reason::with(ReasonCode::NotChosen, format!("`{}` chose otherwise", name(need))))
            }
            Fate::AllSkipped => (TaskState::Skipped, Reason::new(ReasonCode::UpstreamSkipped)),
        };
        flow.slots[task as usize].doomed = true;
        flow.doomed.push_back((task, doomed.0, doomed.1));
        self.flows.wake(id);
    }
}
