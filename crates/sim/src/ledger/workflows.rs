//! Committed workflows: records, task rows and jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, ScheduleId, ShardId, WorkflowId};
use model::job::Job;
use model::key;
use model::time::Millis;
use model::workflow::{CatchUp, NoteKind, Overlap, Schedule, Tally, TaskKey, TaskRecord, Workflow, WorkflowSpec};
use workflow::Plan;
use workflow::cron::Cron;

use super::{Table, changes, unreadable};
use crate::coverage::Coverage;
use crate::invariants::{self, Checked, Violation};

/// Jobs of a workflow and its sub-workflows that have never ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveJobs {
    pub ordinary: u32,
    pub compensating: u32,
}

/// A workflow that was ever committed.
#[derive(Debug)]
pub struct KnownWorkflow {
    /// Newest version, also after its removal.
    pub record: Workflow,
    pub plan: Arc<Plan>,
    pub rows: BTreeMap<TaskKey, TaskRecord>,
    pub removed: bool,
    /// The record is in the keyspace of ended workflows.
    pub archived: bool,
    /// Removal has started: rows are being deleted.
    pub being_removed: bool,
    pub live: LiveJobs,
    /// Live jobs without those of sub-workflows.
    pub own_live: u32,
    /// Its jobs that have ended, each counted once.
    pub ended_jobs: u64,
    /// Jobs counted by its sub-workflows at their end.
    pub jobs_of_children: u64,
    /// It has ended at least once.
    has_ended: bool,
    /// Task rows by state.
    pub tasks: Tally,
    /// Item rows by task and state.
    pub items: BTreeMap<u32, Tally>,
    /// Order of the last compensated task in this run.
    pub last_compensated: Option<u32>,
}

/// A workflow changed by a commit.
#[derive(Debug)]
pub struct ChangedWorkflow {
    pub id: WorkflowId,
    /// Record before the commit; `None` if it is new.
    pub before: Option<Workflow>,
    /// Changed rows, as they were before the commit.
    pub rows: Vec<(TaskKey, Option<TaskRecord>)>,
}

impl ChangedWorkflow {
    /// A row before the commit.
    pub fn row_before<'a>(&'a self, workflow: &'a KnownWorkflow, task_key: TaskKey) -> Option<&'a TaskRecord> {
        match self.rows.binary_search_by_key(&task_key, |(task_key, _)| *task_key) {
            Ok(index) => self.rows[index].1.as_ref(),
            Err(_) => workflow.rows.get(&task_key),
        }
    }

    /// Whether this commit reran it.
    pub fn is_rerun(&self, workflow: &KnownWorkflow) -> bool {
        self.before.as_ref().is_some_and(|before| before.run < workflow.record.run)
    }
}

#[derive(Debug)]
pub struct KnownSchedule {
    pub record: Schedule,
    pub removed: bool,
    cron: Cron,
    /// Started slots of its cron expression.
    pub slots: BTreeSet<Millis>,
    /// Workflows it has started, triggered or on time.
    pub started: u64,
}

/// Workflows and schedules touched by a commit.
#[derive(Debug, Default)]
pub struct TouchedWorkflows {
    workflows: BTreeMap<WorkflowId, BTreeSet<TaskKey>>,
    schedules: BTreeSet<ScheduleId>,
}

impl TouchedWorkflows {
    pub fn mark(&mut self, keyspace: Keyspace, key: &[u8]) {
        match keyspace {
            Keyspace::Tasks => {
                if let Some((id, task_key)) = key::key_of_task(key) {
                    self.workflows.entry(id).or_default().insert(task_key);
                }
            }
            Keyspace::Workflows | Keyspace::WorkflowsDone => {
                if let Some(id) = WorkflowId::from_key(key) {
                    self.workflows.entry(id).or_default();
                }
            }
            Keyspace::Schedules => self.schedules.extend(ScheduleId::from_key(key)),
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
            | Keyspace::RejectedMessages
            | Keyspace::Definitions
            | Keyspace::ByDefinition
            | Keyspace::LateUpdates => {}
        }
    }
}

/// Committed tables of one shard.
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
pub struct Workflows {
    pub known: BTreeMap<WorkflowId, KnownWorkflow>,
    /// Workflows that have not ended or are not archived.
    pub open: BTreeSet<WorkflowId>,
    pub schedules: BTreeMap<ScheduleId, KnownSchedule>,
    /// Workflows with a removal request.
    pub removal_requested: BTreeSet<WorkflowId>,
    plans: BTreeMap<[u8; 16], Arc<Plan>>,
    /// Jobs that have ended at least once.
    ended: BTreeSet<JobId>,
}

impl Workflows {
    /// No workflows, with the same requests.
    pub fn of_requests(other: &Self) -> Self {
        Self { removal_requested: other.removal_requested.clone(), plans: other.plans.clone(), ..Self::default() }
    }

    /// Applies the workflow records of a commit.
    pub fn apply(
        &mut self,
        touched: &TouchedWorkflows,
        tables: &Tables<'_>,
    ) -> Result<Vec<ChangedWorkflow>, Violation> {
        let mut changed = Vec::new();
        for (id, task_keys) in &touched.workflows {
            changed.extend(self.apply_workflow(*id, task_keys, tables)?);
        }
        Ok(changed)
    }

    fn apply_workflow(
        &mut self,
        id: WorkflowId,
        task_keys: &BTreeSet<TaskKey>,
        tables: &Tables<'_>,
    ) -> Result<Option<ChangedWorkflow>, Violation> {
        let live = tables.get(Keyspace::Workflows, &id.key());
        let done = tables.get(Keyspace::WorkflowsDone, &id.key());
        if live.is_some() && done.is_some() {
            return Err(unreadable(&format!("{id} is in the keyspaces of live and of ended workflows")));
        }
        let record: Option<Workflow> =
            live.or(done).map(|bytes| codec::decode(bytes)).transpose().map_err(|error| damaged(&error))?;
        let archived = done.is_some();
        let before = self.known.get(&id).map(|workflow| workflow.record.clone());
        if let Some(record) = &record
            && before.is_none()
        {
            self.add_workflow(record, tables)?;
        }
        let Some(workflow) = self.known.get_mut(&id) else { return Ok(None) };
        match record {
            Some(record) => (workflow.record, workflow.archived, workflow.removed) = (record, archived, false),
            None => workflow.removed = true,
        }
        if workflow.record.state.is_terminal() && (workflow.archived || workflow.removed) {
            self.open.remove(&id);
        } else {
            self.open.insert(id);
        }
        let mut rows = Vec::new();
        for task_key in task_keys {
            let bytes = tables.get(Keyspace::Tasks, &key::task(id, *task_key));
            let row = bytes.map(|bytes| codec::decode(bytes)).transpose().map_err(|error| damaged(&error))?;
            rows.push((*task_key, workflow.put(*task_key, row)));
        }
        Ok(Some(ChangedWorkflow { id, before, rows }))
    }

    /// Adds a new workflow.
    fn add_workflow(&mut self, record: &Workflow, tables: &Tables<'_>) -> Checked {
        let bytes = tables.get(Keyspace::WorkflowSpecs, &record.id.key());
        let bytes = bytes.ok_or_else(|| unreadable(&format!("the definition of {} is missing", record.id)))?;
        let spec: WorkflowSpec = codec::decode(bytes).map_err(|error| damaged(&error))?;
        let plan = match self.plans.get(&spec.digest.0) {
            Some(plan) => plan.clone(),
            None => {
                let definition = tables.get(Keyspace::Definitions, &spec.digest.0);
                let definition =
                    definition.ok_or_else(|| unreadable(&format!("the definition of {} is not stored", record.id)))?;
                Plan::load(definition).map_err(|error| damaged(&error))?
            }
        };
        self.plans.insert(spec.digest.0, plan.clone());
        let workflow = KnownWorkflow {
            record: record.clone(),
            plan,
            rows: BTreeMap::new(),
            removed: false,
            archived: false,
            being_removed: false,
            live: LiveJobs::default(),
            own_live: 0,
            ended_jobs: 0,
            jobs_of_children: 0,
            has_ended: false,
            tasks: Tally::default(),
            items: BTreeMap::new(),
            last_compensated: None,
        };
        self.known.insert(record.id, workflow);
        Ok(())
    }

    /// Applies a committed job of a workflow. `after_rollback`: a compensation submitted by a retry of its dead letter,
    /// which the ended workflow no longer counts.
    pub fn job_changed(&mut self, before: Option<&Job>, after: &Job, after_rollback: bool) -> Checked {
        let Some(origin) = after.origin.as_deref().copied() else { return Ok(()) };
        if before.is_none() {
            let row = self.known.get(&origin.workflow).and_then(|workflow| workflow.rows.get(&origin.task_key));
            invariants::invariant_jobs_belong_to_their_tasks(after, origin, row)?;
        }
        let had_ended = after_rollback || self.ended.contains(&after.id);
        let was = before.is_some() && !had_ended;
        let is = !had_ended && !after.state.is_terminal();
        let ends = !had_ended && after.state.is_terminal();
        if ends {
            self.ended.insert(after.id);
        }
        if let Some(workflow) = self.known.get_mut(&origin.workflow) {
            workflow.ended_jobs += u64::from(ends);
            workflow.own_live = workflow.own_live + u32::from(is) - u32::from(was);
        }
        let mut next = Some(origin.workflow);
        while let Some(workflow) = next.and_then(|id| self.known.get_mut(&id)) {
            let count = if origin.compensation { &mut workflow.live.compensating } else { &mut workflow.live.ordinary };
            *count = *count + u32::from(is) - u32::from(was);
            next = workflow.record.parent.map(|(parent, _)| parent);
        }
        Ok(())
    }

    /// Checks the changed workflows of a commit.
    pub fn check(
        &mut self,
        changed: &[ChangedWorkflow],
        now: Millis,
        retention: Millis,
        coverage: &mut Coverage,
    ) -> Checked {
        for change in changed {
            self.count_children(change);
        }
        for change in changed {
            self.check_workflow(change, now, retention, coverage)?;
        }
        Ok(())
    }

    /// Adds the jobs of a sub-workflow to its parent, once, at its first end.
    fn count_children(&mut self, change: &ChangedWorkflow) {
        let Some(workflow) = self.known.get_mut(&change.id) else { return };
        // Its parent may be rolling it back already.
        let ended = |note: &model::workflow::Note| note.kind == NoteKind::Ended;
        let first_end =
            !workflow.has_ended && (workflow.record.state.is_terminal() || workflow.record.notes.iter().any(ended));
        workflow.has_ended |= first_end;
        let jobs = workflow.record.totals.jobs;
        if let Some((parent, _)) = workflow.record.parent.filter(|_| first_end)
            && let Some(parent) = self.known.get_mut(&parent)
        {
            parent.jobs_of_children += jobs;
        }
    }

    fn check_workflow(
        &mut self,
        change: &ChangedWorkflow,
        now: Millis,
        retention: Millis,
        coverage: &mut Coverage,
    ) -> Checked {
        let requested = self.removal_requested.contains(&change.id);
        let Some(workflow) = self.known.get_mut(&change.id) else { return Ok(()) };
        // A started removal continues, also after a backward clock jump.
        let due = requested
            || workflow.being_removed
            || workflow.record.ended_at().is_some_and(|ended| ended + retention < now);
        let rerun = change.is_rerun(workflow);
        if rerun {
            workflow.last_compensated = None;
        }
        let rows_deleted =
            change.rows.iter().any(|(task_key, before)| before.is_some() && !workflow.rows.contains_key(task_key));
        let removing = workflow.removed || workflow.record.removing;
        if removing || workflow.being_removed || (rows_deleted && !rerun) {
            workflow.being_removed |= removing;
            return invariants::invariant_no_workflow_is_removed_early(workflow, due && removing);
        }
        changes::count_workflow(change, workflow, coverage);
        let parent = workflow.record.parent;
        let workflow = &self.known[&change.id];
        let parent_row = parent.and_then(|(parent, task_key)| self.known.get(&parent)?.rows.get(&task_key));
        invariants::check_tasks(change, workflow)?;
        invariants::check_workflow_record(change, workflow, parent_row)?;
        invariants::check_compensation(change, workflow)?;
        let mut next = Some(change.id);
        while let Some(workflow) = next.and_then(|id| self.known.get(&id)) {
            invariants::invariant_one_compensation_runs_at_a_time(workflow)?;
            next = workflow.record.parent.map(|(parent, _)| parent);
        }
        let newest = invariants::newest_compensated(change, &self.known[&change.id]);
        if let Some(workflow) = self.known.get_mut(&change.id).filter(|_| newest.is_some()) {
            workflow.last_compensated = newest;
        }
        Ok(())
    }

    /// Checks schedules and the workflows they started.
    pub fn check_schedules(
        &mut self,
        touched: &TouchedWorkflows,
        changed: &[ChangedWorkflow],
        tables: &Tables<'_>,
        pause_changed: impl Fn(&str) -> bool,
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
            let Some(record) = self.known.get(&change.id).map(|workflow| &workflow.record) else { continue };
            let Some(from) = record.schedule else { continue };
            let Some(known) = self.schedules.get_mut(&from.id) else { continue };
            known.started += 1;
            let on_time = known.cron.next_after(Millis(from.slot.0 - 1)) == Some(from.slot);
            let is_new = !on_time || known.slots.insert(from.slot);
            invariants::invariant_every_slot_starts_once(record, from, is_new)?;
        }
        for (id, before) in before {
            let Some(known) = self.schedules.get(&id) else { continue };
            invariants::invariant_schedule_counters_equal_a_recount(&known.record, known.started)?;
            if !pause_changed(&known.record.name) {
                let lost = known.first_lost(&before);
                invariants::invariant_no_slot_is_lost(&known.record, lost)?;
            }
        }
        Ok(())
    }
}

impl KnownWorkflow {
    /// Whether a compensation has this dead letter. None: its rows are being removed.
    pub fn has_dead_letter(&self, letter: JobId) -> Option<bool> {
        let removing = self.removed || self.being_removed || self.record.removing;
        let compensations = || self.rows.values().filter_map(|row| row.compensation.as_ref());
        (!removing).then(|| compensations().any(|compensation| compensation.dead_letter == Some(letter)))
    }

    /// Stores a row. Returns the previous one.
    fn put(&mut self, task_key: TaskKey, row: Option<TaskRecord>) -> Option<TaskRecord> {
        let before = match &row {
            Some(row) => self.rows.insert(task_key, row.clone()),
            None => self.rows.remove(&task_key),
        };
        let tally = match task_key.item {
            None => &mut self.tasks,
            Some(_) => self.items.entry(task_key.task).or_default(),
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
    /// The first passed slot that was not started, if the schedule must start all.
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
