//! What has been committed of workflows: their records, their rows and the jobs that belong to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, ScheduleId, ShardId, WorkflowId};
use model::job::Job;
use model::key;
use model::reason::ReasonCode;
use model::time::Millis;
use model::workflow::{CatchUp, NoteKind, Overlap, Place, Schedule, Tally, TaskRecord, Workflow, WorkflowSpec};
use workflow::Plan;
use workflow::cron::Cron;

use super::{Table, story, unreadable};
use crate::coverage::Coverage;
use crate::invariants::{self, Checked, Violation};

/// Jobs that have not ended for the first time, of a workflow and of all that is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveJobs {
    pub ordinary: u32,
    pub undoing: u32,
}

/// A workflow that was committed once.
#[derive(Debug)]
pub struct KnownFlow {
    /// Its newest version, also after it was removed.
    pub record: Workflow,
    pub plan: Arc<Plan>,
    pub rows: BTreeMap<Place, TaskRecord>,
    pub removed: bool,
    /// Its record stands among the ended ones.
    pub filed: bool,
    /// Some of its rows are gone for good: it is being taken off the records.
    pub crumbling: bool,
    pub live: LiveJobs,
    /// Of those, its own.
    pub own_live: u32,
    /// How many of its jobs have ended, each counted once.
    pub ended_jobs: u64,
    /// What its parts had counted when they ended.
    pub jobs_of_parts: u64,
    /// It has ended once.
    has_ended: bool,
    /// The rows of tasks by state, and those of items by task.
    pub tasks: Tally,
    pub items: BTreeMap<u32, Tally>,
    /// The order of what was undone last, in this run.
    pub last_undone: Option<u32>,
}

/// What a commit has changed of a workflow.
#[derive(Debug)]
pub struct ChangedFlow {
    pub id: WorkflowId,
    /// As it was; none: it is new.
    pub before: Option<Workflow>,
    /// Rows as they were.
    pub rows: Vec<(Place, Option<TaskRecord>)>,
}

impl ChangedFlow {
    /// A row as it was before the commit.
    pub fn row_before<'a>(&'a self, flow: &'a KnownFlow, place: Place) -> Option<&'a TaskRecord> {
        match self.rows.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(index) => self.rows[index].1.as_ref(),
            Err(_) => flow.rows.get(&place),
        }
    }

    /// Whether it has been run again with this commit.
    pub fn is_rerun(&self, flow: &KnownFlow) -> bool {
        self.before.as_ref().is_some_and(|before| before.run < flow.record.run)
    }
}

#[derive(Debug)]
pub struct KnownSchedule {
    pub record: Schedule,
    pub removed: bool,
    cron: Cron,
    /// Slots of its cron expression that were started.
    pub slots: BTreeSet<Millis>,
    /// How many workflows it has started, by hand or by the clock.
    pub started: u64,
}

/// What a commit has touched of workflows.
#[derive(Debug, Default)]
pub struct TouchedFlows {
    flows: BTreeMap<WorkflowId, BTreeSet<Place>>,
    schedules: BTreeSet<ScheduleId>,
}

impl TouchedFlows {
    pub fn note(&mut self, keyspace: Keyspace, place: &[u8]) {
        match keyspace {
            Keyspace::Tasks => {
                if let Some((id, place)) = key::place_of_task(place) {
                    self.flows.entry(id).or_default().insert(place);
                }
            }
            Keyspace::Workflows | Keyspace::WorkflowsDone => {
                if let Some(id) = WorkflowId::from_key(place) {
                    self.flows.entry(id).or_default();
                }
            }
            Keyspace::Schedules => self.schedules.extend(ScheduleId::from_key(place)),
            Keyspace::Live
            | Keyspace::Done
            | Keyspace::Spec
            | Keyspace::ByQueue
            | Keyspace::ByState
            | Keyspace::Queues
            | Keyspace::Keys
            | Keyspace::Runners
            | Keyspace::Meta
            | Keyspace::DeadLetters
            | Keyspace::Audit
            | Keyspace::Scans
            | Keyspace::Grants
            | Keyspace::WorkflowSpecs
            | Keyspace::Signals
            | Keyspace::Parked
            | Keyspace::LateWords => {}
        }
    }
}

/// The tables of one shard.
pub struct Tables<'a> {
    pub shard: ShardId,
    pub all: &'a BTreeMap<(ShardId, Keyspace), Table>,
}

impl Tables<'_> {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Option<&Bytes> {
        self.all.get(&(self.shard, keyspace))?.get(key)
    }
}

fn damaged(error: &dyn std::fmt::Display) -> Violation {
    unreadable(&error.to_string())
}

#[derive(Debug, Default)]
pub struct Flows {
    pub known: BTreeMap<WorkflowId, KnownFlow>,
    /// Those that have not ended, and those that are not filed.
    pub open: BTreeSet<WorkflowId>,
    pub schedules: BTreeMap<ScheduleId, KnownSchedule>,
    /// Workflows whose removal was asked for.
    pub removal_asked: BTreeSet<WorkflowId>,
    plans: BTreeMap<[u8; 16], Arc<Plan>>,
    /// Jobs that have ended once.
    ended: BTreeSet<JobId>,
}

impl Flows {
    /// Takes note of what a commit has written of workflows.
    pub fn take(&mut self, touched: &TouchedFlows, tables: &Tables<'_>) -> Result<Vec<ChangedFlow>, Violation> {
        let mut changed = Vec::new();
        for (id, places) in &touched.flows {
            changed.extend(self.take_flow(*id, places, tables)?);
        }
        Ok(changed)
    }

    fn take_flow(
        &mut self,
        id: WorkflowId,
        places: &BTreeSet<Place>,
        tables: &Tables<'_>,
    ) -> Result<Option<ChangedFlow>, Violation> {
        let live = tables.get(Keyspace::Workflows, &id.key());
        let done = tables.get(Keyspace::WorkflowsDone, &id.key());
        if live.is_some() && done.is_some() {
            return Err(unreadable(&format!("{id} is both live and ended")));
        }
        let record: Option<Workflow> =
            live.or(done).map(|bytes| codec::decode(bytes)).transpose().map_err(|error| damaged(&error))?;
        let filed = done.is_some();
        let before = self.known.get(&id).map(|flow| flow.record.clone());
        if let Some(record) = &record
            && before.is_none()
        {
            self.meet(record, tables)?;
        }
        let Some(flow) = self.known.get_mut(&id) else { return Ok(None) };
        match record {
            Some(record) => (flow.record, flow.filed, flow.removed) = (record, filed, false),
            None => flow.removed = true,
        }
        if flow.record.state.is_terminal() && (flow.filed || flow.removed) {
            self.open.remove(&id);
        } else {
            self.open.insert(id);
        }
        let mut rows = Vec::new();
        for place in places {
            let bytes = tables.get(Keyspace::Tasks, &key::task(id, *place));
            let row = bytes.map(|bytes| codec::decode(bytes)).transpose().map_err(|error| damaged(&error))?;
            rows.push((*place, flow.put(*place, row)));
        }
        Ok(Some(ChangedFlow { id, before, rows }))
    }

    /// A workflow that was not there before.
    fn meet(&mut self, record: &Workflow, tables: &Tables<'_>) -> Checked {
        let bytes = tables.get(Keyspace::WorkflowSpecs, &record.id.key());
        let bytes = bytes.ok_or_else(|| unreadable(&format!("{} was started with nothing", record.id)))?;
        let spec: WorkflowSpec = codec::decode(bytes).map_err(|error| damaged(&error))?;
        let plan = match self.plans.get(&spec.digest.0) {
            Some(plan) => plan.clone(),
            None => Plan::load(&spec.definition).map_err(|error| damaged(&error))?,
        };
        self.plans.insert(spec.digest.0, plan.clone());
        let flow = KnownFlow {
            record: record.clone(),
            plan,
            rows: BTreeMap::new(),
            removed: false,
            filed: false,
            crumbling: false,
            live: LiveJobs::default(),
            own_live: 0,
            ended_jobs: 0,
            jobs_of_parts: 0,
            has_ended: false,
            tasks: Tally::default(),
            items: BTreeMap::new(),
            last_undone: None,
        };
        self.known.insert(record.id, flow);
        Ok(())
    }

    /// A job of a workflow was committed.
    pub fn job_changed(&mut self, before: Option<&Job>, after: &Job) -> Checked {
        let Some(origin) = after.origin.as_deref().copied() else { return Ok(()) };
        if before.is_none() {
            let row = self.known.get(&origin.workflow).and_then(|flow| flow.rows.get(&origin.place));
            invariants::invariant_jobs_belong_to_their_tasks(after, origin, row)?;
        }
        let had_ended = self.ended.contains(&after.id);
        let was = before.is_some() && !had_ended;
        let is = !had_ended && !after.state.is_terminal();
        let ends = !had_ended && after.state.is_terminal();
        if ends {
            self.ended.insert(after.id);
        }
        let buried = after.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::CompensationUnreadable);
        if let Some(flow) = self.known.get_mut(&origin.workflow) {
            // What nobody could run has used nothing.
            flow.ended_jobs += u64::from(ends && !buried);
            flow.own_live = flow.own_live + u32::from(is) - u32::from(was);
        }
        let mut next = Some(origin.workflow);
        while let Some(flow) = next.and_then(|id| self.known.get_mut(&id)) {
            let count = if origin.compensation { &mut flow.live.undoing } else { &mut flow.live.ordinary };
            *count = *count + u32::from(is) - u32::from(was);
            next = flow.record.parent.map(|(parent, _)| parent);
        }
        Ok(())
    }

    /// Holds what a commit has changed against what must be true.
    pub fn check(
        &mut self,
        changed: &[ChangedFlow],
        now: Millis,
        retention: Millis,
        coverage: &mut Coverage,
    ) -> Checked {
        for change in changed {
            self.count_parts(change);
        }
        for change in changed {
            self.check_flow(change, now, retention, coverage)?;
        }
        Ok(())
    }

    /// A part that has ended hands on what it has counted; it does so once.
    fn count_parts(&mut self, change: &ChangedFlow) {
        let Some(flow) = self.known.get_mut(&change.id) else { return };
        // It may be undone already, by the whole that it is part of.
        let ended = |note: &model::workflow::Note| note.kind == NoteKind::Ended;
        let first_end = !flow.has_ended && (flow.record.state.is_terminal() || flow.record.notes.iter().any(ended));
        flow.has_ended |= first_end;
        let jobs = flow.record.totals.jobs;
        if let Some((parent, _)) = flow.record.parent.filter(|_| first_end)
            && let Some(parent) = self.known.get_mut(&parent)
        {
            parent.jobs_of_parts += jobs;
        }
    }

    fn check_flow(&mut self, change: &ChangedFlow, now: Millis, retention: Millis, coverage: &mut Coverage) -> Checked {
        let asked = self.removal_asked.contains(&change.id);
        let Some(flow) = self.known.get_mut(&change.id) else { return Ok(()) };
        // What has begun to go goes on, also when a clock was set back meanwhile.
        let due = asked || flow.crumbling || flow.record.ended_at().is_some_and(|ended| ended + retention < now);
        let rerun = change.is_rerun(flow);
        if rerun {
            flow.last_undone = None;
        }
        let gone = change.rows.iter().any(|(place, before)| before.is_some() && !flow.rows.contains_key(place));
        let going = flow.removed || flow.record.removing;
        if going || flow.crumbling || (gone && !rerun) {
            flow.crumbling |= going;
            return invariants::invariant_no_workflow_is_forgotten_early(flow, due && going);
        }
        story::note_flow(change, flow, coverage);
        let parent = flow.record.parent;
        let flow = &self.known[&change.id];
        let above = parent.and_then(|(parent, place)| self.known.get(&parent)?.rows.get(&place));
        invariants::check_tasks(change, flow)?;
        invariants::check_whole(change, flow, above)?;
        invariants::check_undoing(change, flow)?;
        let mut next = Some(change.id);
        while let Some(flow) = next.and_then(|id| self.known.get(&id)) {
            invariants::invariant_one_step_is_undone_at_a_time(flow)?;
            next = flow.record.parent.map(|(parent, _)| parent);
        }
        let newest = invariants::newest_undone(change, &self.known[&change.id]);
        if let Some(flow) = self.known.get_mut(&change.id).filter(|_| newest.is_some()) {
            flow.last_undone = newest;
        }
        Ok(())
    }

    /// Schedules, and what they have started.
    pub fn check_schedules(
        &mut self,
        touched: &TouchedFlows,
        changed: &[ChangedFlow],
        tables: &Tables<'_>,
        handled: impl Fn(&str) -> bool,
    ) -> Checked {
        let mut before = BTreeMap::new();
        for id in &touched.schedules {
            let bytes = tables.get(Keyspace::Schedules, &id.key());
            let Some(bytes) = bytes else {
                if let Some(known) = self.schedules.get_mut(id) {
                    known.removed = true;
                }
                continue;
            };
            let record: Schedule = codec::decode(bytes).map_err(|error| damaged(&error))?;
            match self.schedules.get_mut(id) {
                Some(known) => drop(before.insert(*id, std::mem::replace(&mut known.record, record))),
                None => {
                    let cron = Cron::parse(&record.spec.cron, &record.spec.zone).map_err(|error| damaged(&error))?;
                    let known = KnownSchedule { record, removed: false, cron, slots: BTreeSet::new(), started: 0 };
                    self.schedules.insert(*id, known);
                }
            }
        }
        for change in changed.iter().filter(|change| change.before.is_none()) {
            let Some(record) = self.known.get(&change.id).map(|flow| &flow.record) else { continue };
            let Some(from) = record.schedule else { continue };
            let Some(known) = self.schedules.get_mut(&from.id) else { continue };
            known.started += 1;
            let on_time = known.cron.next_after(Millis(from.slot.0 - 1)) == Some(from.slot);
            let is_new = !on_time || known.slots.insert(from.slot);
            invariants::invariant_every_slot_starts_once(record, from, is_new)?;
        }
        for (id, before) in before {
            let Some(known) = self.schedules.get(&id) else { continue };
            invariants::invariant_schedules_count_right(&known.record, known.started)?;
            if !handled(&known.record.name) {
                let lost = known.first_lost(&before);
                invariants::invariant_no_slot_is_lost(&known.record, lost)?;
            }
        }
        Ok(())
    }
}

impl KnownFlow {
    /// Puts a row in its place; returns what was there.
    fn put(&mut self, place: Place, row: Option<TaskRecord>) -> Option<TaskRecord> {
        let before = match &row {
            Some(row) => self.rows.insert(place, row.clone()),
            None => self.rows.remove(&place),
        };
        let tally = match place.item {
            None => &mut self.tasks,
            Some(_) => self.items.entry(place.task).or_default(),
        };
        if let Some(before) = &before {
            tally.0[usize::from(before.state.code())] -= 1;
        }
        if let Some(row) = &row {
            tally.add(row.state, 1);
        }
        before
    }
}

impl KnownSchedule {
    /// The first slot that has had its turn and was not started, where each has to be.
    fn first_lost(&self, before: &Schedule) -> Option<Millis> {
        let spec = &self.record.spec;
        let all = spec.catch_up == CatchUp::All && matches!(spec.overlap, Overlap::Allow | Overlap::Forbid);
        if !all {
            return None;
        }
        let slots = self.cron.slots(before.last_slot);
        slots.take_while(|slot| *slot <= self.record.last_slot).find(|slot| !self.slots.contains(slot))
    }
}
