//! Workflows: start, evaluate, stop and roll back graphs of tasks.
//!
//! A workflow with its tasks and sub-workflows lives in one shard and changes in one commit. A task's work is an
//! ordinary job; the end of the job and the end of the task are one commit. Consequences of an end (next tasks,
//! cancellation of others, the next compensation) are derived from the records, executed in steps of bounded size, and
//! derived again after a crash.

mod begin;
mod counts;
mod decide;
mod definitions;
mod flush;
mod jobs;
mod late;
mod live;
mod operate;
mod rerun;
mod restore;
mod retention;
mod saga;
mod schedules;
mod scope;
mod settle;
mod signals;
mod start;
mod stop;
mod timers;
mod unconfirmed;
mod unsubmitted;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::id::{JobId, ScheduleId, WorkflowId};
use model::time::Millis;

use crate::shard::{Map, Shard};

pub use counts::WorkflowStats;
use definitions::Definitions;
pub use definitions::find_unused_definitions;
pub(crate) use live::LiveWorkflow;
use unconfirmed::UnconfirmedAttempts;
pub(crate) use unsubmitted::LetterOperation;

/// Upper bound of the size of a schedule's record without its inputs.
const SCHEDULE_BYTES: usize = 2_048;

/// All workflows of a shard that have not ended, and their sub-workflows.
#[derive(Debug, Default)]
pub(crate) struct Workflows {
    map: Map<WorkflowId, Box<LiveWorkflow>>,
    /// Changed since the last flush.
    dirty: Vec<WorkflowId>,
    /// Workflows with work to do now.
    busy: VecDeque<WorkflowId>,
    /// Workflows to stop because their queue was cancelled.
    to_stop: VecDeque<WorkflowId>,
    /// Workflows whose next job would exceed a limit of live jobs; all are retried together at `room_retry_at`.
    waiting_for_room: Vec<WorkflowId>,
    room_retry_at: Option<Millis>,
    /// Jobs of workflows that entered or left a terminal state in this step.
    pending_job_updates: VecDeque<JobId>,
    /// Sub-workflows that ended, or were rolled back, in this step.
    pending_child_updates: VecDeque<WorkflowId>,
    /// Sub-workflows of finished workflows, to be moved to the finished ones with them.
    children_to_finish: VecDeque<WorkflowId>,
    timers: BTreeSet<(Millis, timers::WorkflowTimer)>,
    /// Requests and updates that wait for a workflow's fetch.
    awaiting_fetch: Map<WorkflowId, late::AwaitingFetch>,
    /// How often workflows were fetched for late updates in the current [`late::FETCH_INTERVAL`].
    late_fetches: Map<WorkflowId, u32>,
    schedules: BTreeMap<ScheduleId, schedules::LiveSchedule>,
    dirty_schedules: BTreeSet<ScheduleId>,
    sweep: retention::WorkflowSweep,
    /// Restored marks of jobs whose updates have not been applied to their workflows.
    late_updates: BTreeSet<JobId>,
    definitions: Definitions,
    unconfirmed: UnconfirmedAttempts,
    /// Upper bound of the size of the changed records.
    dirty_bytes: usize,
    /// Workflows that this version cannot read. Nothing is done to them; another version continues them.
    suspended: BTreeSet<WorkflowId>,
}

impl Workflows {
    pub fn schedule_ids(&self) -> Vec<ScheduleId> {
        self.schedules.keys().copied().collect()
    }

    /// Ids in the order of creation.
    pub fn sorted_ids(&self) -> Vec<WorkflowId> {
        let mut ids: Vec<WorkflowId> = self.map.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Upper bound of the size of the records that the flush writes.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes + self.dirty_schedules.len() * SCHEDULE_BYTES
    }

    /// Time of the next work. Absent: no work.
    pub fn next(&self) -> Option<Millis> {
        if !self.busy.is_empty() || !self.children_to_finish.is_empty() || !self.to_stop.is_empty() {
            return Some(Millis(0));
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.room_retry_at, self.sweep.next(), self.definitions.next_sweep()].into_iter().flatten().min()
    }

    /// Notes that a job of a workflow entered or left a terminal state.
    pub fn note_job_update(&mut self, job: JobId) {
        self.pending_job_updates.push_back(job);
    }

    /// Drops a workflow from memory.
    fn forget(&mut self, id: WorkflowId) -> Option<Box<LiveWorkflow>> {
        let workflow = self.map.remove(&id)?;
        if let Some(digest) = workflow.record.definition {
            self.definitions.leave(digest);
        }
        if workflow.dirty {
            self.dirty.retain(|changed| *changed != id);
        }
        self.untrack_unconfirmed(&workflow);
        Some(workflow)
    }

    /// Queues the workflow for work.
    fn wake(&mut self, id: WorkflowId) {
        if let Some(workflow) = self.map.get_mut(&id)
            && !workflow.queued
        {
            workflow.queued = true;
            self.busy.push_back(id);
        }
    }

    /// Marks the workflow's record as changed.
    fn touch(&mut self, id: WorkflowId) -> Option<&mut LiveWorkflow> {
        let workflow = self.map.get_mut(&id)?;
        if !workflow.dirty {
            workflow.dirty = true;
            self.dirty.push(id);
            self.dirty_bytes += workflow.record.record_bytes();
        }
        Some(workflow)
    }
}

impl Shard {
    /// Keeps the workflow's queue from expiring before the workflow has ended.
    fn hold_queue(&mut self, id: WorkflowId) {
        if let Some(workflow) = self.workflows.map.get_mut(&id)
            && !std::mem::replace(&mut workflow.holds_queue, true)
        {
            self.queues.hold(workflow.record.queue);
        }
    }

    /// Number of workflows that this version cannot read.
    pub fn suspended_workflows(&self) -> usize {
        self.workflows.suspended.len()
    }

    /// Number of workflows in memory.
    pub fn live_workflows(&self) -> usize {
        self.workflows.map.len()
    }

    /// The record of a workflow that has not ended, or is part of such a one.
    pub fn workflow(&self, id: WorkflowId) -> Option<&model::workflow::Workflow> {
        self.workflows.map.get(&id).map(|workflow| &workflow.record)
    }
}
