//! Workflows: what their tasks wait for, begin and come to.
//!
//! A workflow and everything in it live in one shard and change in one commit. What a task does is done by an ordinary
//! job; the end of the job and the end of its task are one commit. What follows from an end (the next tasks, the
//! cancellation of others, the next step of a rollback) is derived from the records: it is worked off in steps of
//! bounded size, and after a crash it is found again.

mod begin;
mod counts;
mod decide;
mod flow;
mod flush;
mod jobs;
mod late;
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
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::id::{JobId, ScheduleId, WorkflowId};
use model::time::Millis;

use crate::shard::{Map, Shard};

pub use counts::FlowStats;
pub(crate) use flow::Flow;

/// All workflows of a shard that have not ended, and what is part of them.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    pub map: Map<WorkflowId, Box<Flow>>,
    /// Changed since the last flush.
    dirty: Vec<WorkflowId>,
    /// Those with something to do at once.
    busy: VecDeque<WorkflowId>,
    /// Those whose queue was cancelled.
    to_stop: VecDeque<WorkflowId>,
    /// Those whose next job had no room; they look again together.
    starved: Vec<WorkflowId>,
    look_again_at: Option<Millis>,
    /// Jobs of workflows that have entered or left a terminal state in this step.
    pub news: VecDeque<JobId>,
    /// Sub-workflows that have ended, or have been undone, in this step.
    child_news: VecDeque<WorkflowId>,
    /// Sub-workflows of workflows that have ended: they go to the ended ones, too.
    filing: VecDeque<WorkflowId>,
    timers: BTreeSet<(Millis, timers::FlowTimer)>,
    /// What waits for a workflow to be fetched, in its order.
    asked: Map<WorkflowId, Vec<late::Late>>,
    schedules: BTreeMap<ScheduleId, schedules::Entry>,
    dirty_schedules: BTreeSet<ScheduleId>,
    sweep: retention::FlowSweep,
    /// Restored marks of jobs whose words have not reached their workflows.
    late_words: Vec<JobId>,
    /// Restored workflows whose definitions cannot be read any more.
    unreadable: Vec<model::workflow::Workflow>,
}

impl Flows {
    /// When there is something to do, at the latest.
    pub fn next(&self) -> Option<Millis> {
        if !self.busy.is_empty() || !self.filing.is_empty() || !self.to_stop.is_empty() {
            return Some(Millis(0));
        }
        [self.timers.first().map(|(at, _)| *at), self.look_again_at, self.sweep.next()].into_iter().flatten().min()
    }

    /// There is something to do for it.
    fn wake(&mut self, id: WorkflowId) {
        if let Some(flow) = self.map.get_mut(&id)
            && !flow.queued
        {
            flow.queued = true;
            self.busy.push_back(id);
        }
    }

    /// Its record has changed.
    fn touch(&mut self, id: WorkflowId) -> Option<&mut Flow> {
        let flow = self.map.get_mut(&id)?;
        if !flow.dirty {
            flow.dirty = true;
            self.dirty.push(id);
        }
        Some(flow)
    }
}

impl Shard {
    /// How many workflows are in memory.
    pub fn live_workflows(&self) -> usize {
        self.flows.map.len()
    }

    /// A workflow that has not ended, or is part of one.
    pub fn workflow(&self, id: WorkflowId) -> Option<&model::workflow::Workflow> {
        self.flows.map.get(&id).map(|flow| &flow.record)
    }
}
