//! One workflow in memory.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::id::WorkflowId;
use model::json::Json;
use model::reason::{Reason, ReasonCode};
use model::spec::{Digest, PackedSpec};
use model::time::{Millis, Timestamp};
use model::workflow::{Signal, TaskKey, TaskRecord, TaskState, Workflow, WorkflowState};
use serde_json::Value;
use workflow::Plan;
use workflow::plan::{Case, OnFailure, Task, TaskWork};

use super::late::StaleResults;
use crate::shard::Map;

/// A workflow's record with the state derived from it.
#[derive(Debug)]
pub(crate) struct LiveWorkflow {
    pub record: Workflow,
    pub plan: Arc<Plan>,
    pub inputs: Value,
    /// The schedule slot as text, for templates.
    pub slot_text: Option<Box<str>>,
    pub tasks: Vec<LiveTask>,
    /// Number of tasks per epoch that have not ended.
    pub open_in_epoch: Vec<u32>,
    /// Tasks that may begin.
    pub ready: VecDeque<u32>,
    /// Tasks that will not run, with their final state and reason.
    pub excluded: VecDeque<(u32, TaskState, Reason)>,
    /// Merged tasks and items whose leader has ended.
    pub merged_ready: VecDeque<TaskKey>,
    /// `for_each` tasks with items that may begin.
    pub for_each_ready: VecDeque<u32>,
    /// While stopping: the next task or item to stop.
    pub stop_cursor: Option<TaskKey>,
    /// The first failure that is not tolerated.
    pub failure: Option<Reason>,
    /// The first epoch with such a failure. Later epochs do not begin.
    pub failed_epoch: Option<u32>,
    /// Merge key to leader: the task or item that runs the shared job.
    pub merges: Map<Digest, TaskKey>,
    /// Leader to the merged tasks and items that wait for its outcome.
    pub followers: BTreeMap<TaskKey, Vec<TaskKey>>,
    /// Signal name to the tasks and items that wait for it.
    pub listeners: BTreeMap<Box<str>, VecDeque<TaskKey>>,
    /// Signals that no task has consumed.
    pub signals: BTreeMap<u32, Signal>,
    /// Sub-workflows in memory.
    pub children: BTreeSet<WorkflowId>,
    /// Tasks and items still to compensate, with their order. The last is next.
    pub stack: Vec<(u32, TaskKey)>,
    /// The task or item being compensated.
    pub compensating: Option<TaskKey>,
    /// Number of attempts in its rows that may still run.
    pub unconfirmed: u32,
    pub dirty: bool,
    pub dirty_rows: Vec<TaskKey>,
    /// A record exists in `Workflows`.
    pub stored: bool,
    /// A record exists in `WorkflowsDone`.
    pub was_finished: bool,
    /// Set while late updates of its jobs are applied in a batch.
    pub stale_results: Option<StaleResults>,
    /// The next flush moves it to the finished workflows.
    pub moves_to_finished: bool,
    /// It is in the queue of workflows with work to do.
    pub queued: bool,
    /// Some task has a compensation or is a sub-workflow.
    pub can_compensate: bool,
    /// It keeps its queue from expiring.
    pub holds_queue: bool,
    /// Cached job of a task whose items all have the same one.
    pub packed: Option<(u32, PackedSpec)>,
}

/// A task's record with the state derived from it.
#[derive(Debug)]
pub(crate) struct LiveTask {
    pub state: TaskState,
    pub dirty: bool,
    /// It will not run; see [`LiveWorkflow::excluded`].
    pub excluded: bool,
    /// Number of its needs that have not ended.
    pub open_needs: u32,
    /// Absent until the task has begun.
    pub record: Option<Box<TaskRecord>>,
    pub for_each: Option<Box<ForEachState>>,
    /// Decoded result, cached at the first read by a template.
    pub value: OnceCell<Box<Value>>,
}

/// Items of a `for_each` task.
#[derive(Debug)]
pub(crate) struct ForEachState {
    pub values: Vec<Value>,
    pub items: Vec<LiveItem>,
    /// The next item to begin.
    pub next: u32,
    pub live: u32,
    /// Number of items that have not ended.
    pub left: u32,
    pub failure: Option<Reason>,
    /// Total size of the items' results.
    pub bytes: usize,
    /// The task is in [`LiveWorkflow::for_each_ready`].
    pub queued: bool,
}

/// An item of a `for_each` task.
#[derive(Debug)]
pub(crate) struct LiveItem {
    pub state: TaskState,
    pub dirty: bool,
    pub record: Option<Box<TaskRecord>>,
}

impl ForEachState {
    /// Items of which none has begun.
    pub fn new(values: Vec<Value>) -> Self {
        let count = values.len();
        let blank = || LiveItem { state: TaskState::Waiting, dirty: false, record: None };
        Self {
            values,
            items: std::iter::repeat_with(blank).take(count).collect(),
            next: 0,
            live: 0,
            left: count as u32,
            failure: None,
            bytes: 0,
            queued: false,
        }
    }

    /// Whether another item may begin.
    pub fn has_next(&self, concurrency: Option<u32>) -> bool {
        (self.next as usize) < self.items.len() && concurrency.is_none_or(|most| self.live < most)
    }
}

/// A task's outcome as its dependents see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutcomeClass {
    /// It has not ended.
    Open,
    /// It succeeded, or its failure is tolerated.
    Success,
    Skipped,
    Failure,
}

impl LiveWorkflow {
    /// A workflow of which no task has begun.
    pub fn new(record: Workflow, plan: Arc<Plan>, inputs: Value) -> Self {
        let tasks = plan.tasks.iter().map(|task| LiveTask {
            state: TaskState::Waiting,
            dirty: false,
            excluded: false,
            open_needs: task.needs.len() as u32,
            record: None,
            for_each: None,
            value: OnceCell::new(),
        });
        let mut open_in_epoch = vec![0; plan.epochs.len().max(1)];
        for task in &plan.tasks {
            open_in_epoch[task.epoch as usize] += 1;
        }
        Self {
            slot_text: record.schedule.map(|from| Timestamp(from.slot).to_string().into()),
            tasks: tasks.collect(),
            open_in_epoch,
            ready: VecDeque::new(),
            excluded: VecDeque::new(),
            merged_ready: VecDeque::new(),
            for_each_ready: VecDeque::new(),
            stop_cursor: None,
            failure: None,
            failed_epoch: None,
            merges: Map::default(),
            followers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            signals: BTreeMap::new(),
            children: BTreeSet::new(),
            stack: Vec::new(),
            compensating: None,
            unconfirmed: 0,
            dirty: false,
            dirty_rows: Vec::new(),
            stored: false,
            was_finished: false,
            stale_results: None,
            moves_to_finished: false,
            queued: false,
            holds_queue: false,
            packed: None,
            can_compensate: plan
                .tasks
                .iter()
                .any(|task| task.compensation.is_some() || matches!(task.work, TaskWork::Workflow { .. })),
            record,
            plan,
            inputs,
        }
    }

    /// The task's definition.
    pub fn task(&self, task_key: TaskKey) -> &Task {
        &self.plan.tasks[task_key.task as usize]
    }

    /// State of a task or item.
    pub fn state(&self, task_key: TaskKey) -> TaskState {
        let live_task = &self.tasks[task_key.task as usize];
        match task_key.item {
            None => live_task.state,
            Some(item) => live_task
                .for_each
                .as_ref()
                .and_then(|each| each.items.get(item as usize))
                .map_or(TaskState::Waiting, |item| item.state),
        }
    }

    /// Row of a task or item, once it has begun.
    pub fn row(&self, task_key: TaskKey) -> Option<&TaskRecord> {
        let live_task = &self.tasks[task_key.task as usize];
        match task_key.item {
            None => live_task.record.as_deref(),
            Some(item) => live_task.for_each.as_ref()?.items.get(item as usize)?.record.as_deref(),
        }
    }

    /// The row of a task or item, for a change: the next flush writes it. Creates the row if there is none.
    pub fn row_mut(&mut self, task_key: TaskKey, now: Millis) -> Option<&mut TaskRecord> {
        let live_task = self.tasks.get_mut(task_key.task as usize)?;
        let (state, dirty, record) = match task_key.item {
            None => (live_task.state, &mut live_task.dirty, &mut live_task.record),
            Some(item) => {
                let item = live_task.for_each.as_mut()?.items.get_mut(item as usize)?;
                (item.state, &mut item.dirty, &mut item.record)
            }
        };
        if !*dirty {
            *dirty = true;
            self.dirty_rows.push(task_key);
        }
        // The cached result may be outdated.
        if task_key.item.is_none() {
            live_task.value.take();
        }
        Some(record.get_or_insert_with(|| Box::new(TaskRecord::new(state, now))))
    }

    /// Moves a task or item to another state; updates its row and the tallies.
    pub fn enter(&mut self, task_key: TaskKey, state: TaskState, now: Millis) -> Option<&mut TaskRecord> {
        let from = self.state(task_key);
        let live_task = &mut self.tasks[task_key.task as usize];
        match task_key.item {
            None => {
                live_task.state = state;
                self.record.tasks.shift(from, state);
                if from.is_terminal() != state.is_terminal() {
                    let open = &mut self.open_in_epoch[self.plan.tasks[task_key.task as usize].epoch as usize];
                    *open = if state.is_terminal() { *open - 1 } else { *open + 1 };
                }
            }
            Some(item) => {
                let each = live_task.for_each.as_mut()?;
                each.items.get_mut(item as usize)?.state = state;
                each.live = each.live + u32::from(state.is_live()) - u32::from(from.is_live());
                each.left = each.left + u32::from(from.is_terminal()) - u32::from(state.is_terminal());
                self.record.items.shift(from, state);
            }
        }
        let row = self.row_mut(task_key, now)?;
        row.state = state;
        // A late scan changes how the task ended, not when.
        if state.is_terminal() && !from.is_terminal() {
            row.ended_at = Some(now);
        }
        Some(row)
    }

    /// The task's outcome for its dependents.
    pub fn outcome_class(&self, task: u32) -> OutcomeClass {
        let live_task = &self.tasks[task as usize];
        let upstream = |row: &TaskRecord| row.reason.as_ref().is_some_and(|why| why.code == ReasonCode::UpstreamFailed);
        let tolerated = self.plan.tasks[task as usize].on_failure == OnFailure::Continue
            && !live_task.record.as_deref().is_some_and(upstream);
        match live_task.state {
            TaskState::Waiting
            | TaskState::Running
            | TaskState::Sleeping
            | TaskState::Listening
            | TaskState::Merged => OutcomeClass::Open,
            TaskState::Succeeded => OutcomeClass::Success,
            TaskState::Failed | TaskState::Cancelled | TaskState::Quarantined if tolerated => OutcomeClass::Success,
            TaskState::Skipped => OutcomeClass::Skipped,
            TaskState::Failed | TaskState::Cancelled | TaskState::Quarantined => OutcomeClass::Failure,
        }
    }

    /// Whether a switch has chosen a case without this task.
    pub fn is_not_chosen(&self, switch: u32, task: u32) -> bool {
        let TaskWork::Switch(cases) = &self.plan.tasks[switch as usize].work else { return false };
        let Some(row) = &self.tasks[switch as usize].record else { return false };
        let chosen = row.chosen.and_then(|case| cases.get(case as usize));
        // `then` is sorted; it can be very long.
        let names = |case: &Case| case.then.binary_search(&task).is_ok();
        cases.iter().any(names) && !chosen.is_some_and(names)
    }

    /// Readiness of a task that has not begun, by the outcomes of its needs so far.
    pub fn readiness(&self, task: u32) -> Readiness {
        let plan = &self.plan.tasks[task as usize];
        if let Some(epoch) = self.failed_epoch.filter(|failed| plan.epoch > *failed) {
            return Readiness::EpochFailed(epoch);
        }
        let mut skipped = 0;
        let mut open = false;
        for need in &plan.needs {
            match self.outcome_class(*need) {
                OutcomeClass::Open => open = true,
                OutcomeClass::Failure => return Readiness::UpstreamFailed(*need),
                OutcomeClass::Skipped => skipped += 1,
                OutcomeClass::Success if self.is_not_chosen(*need, task) => return Readiness::NotChosen(*need),
                OutcomeClass::Success => {}
            }
        }
        match (open, skipped > 0 && skipped == plan.needs.len()) {
            (true, _) => Readiness::Waiting,
            (false, true) => Readiness::AllSkipped,
            (false, false) if plan.epoch > self.record.epoch => Readiness::Waiting,
            (false, false) => Readiness::Ready,
        }
    }

    /// Running or paused: tasks may still begin.
    pub fn is_active(&self) -> bool {
        matches!(self.record.state, WorkflowState::Running | WorkflowState::Paused)
    }

    /// Whether all tasks have ended.
    pub fn is_settled(&self) -> bool {
        self.open_in_epoch.iter().all(|open| *open == 0)
    }

    /// Whether the task's or item's end gets an order number for the rollback.
    pub fn is_compensable(&self, task_key: TaskKey) -> bool {
        let task = self.task(task_key);
        let is_whole = task_key.item.is_none() && task.for_each.is_some();
        !is_whole && (task.compensation.is_some() || matches!(task.work, TaskWork::Workflow { .. }))
    }

    /// The result of a task or item; of a merged one, its leader's.
    pub fn result_of(&self, task_key: TaskKey) -> Option<&Json> {
        let row = self.row(task_key)?;
        match row.merged_into {
            Some(leader) if row.state == TaskState::Succeeded => self.row(leader)?.result.as_ref(),
            Some(_) | None => row.result.as_ref(),
        }
    }

    /// The rows of all items and tasks that have begun.
    pub fn rows(&self) -> impl Iterator<Item = (TaskKey, &TaskRecord)> {
        self.tasks.iter().enumerate().flat_map(|(task, live_task)| {
            let task = task as u32;
            let items = live_task.for_each.iter().flat_map(|each| each.items.iter().enumerate());
            let items = items.map(move |(item, live)| (TaskKey::item(task, item as u32), live.record.as_deref()));
            let rows = items.chain([(TaskKey::of(task), live_task.record.as_deref())]);
            rows.filter_map(|(task_key, row)| row.map(|row| (task_key, row)))
        })
    }

    /// The tasks and items merged into `leader`.
    pub fn merged_tasks(&self, leader: TaskKey) -> Vec<TaskKey> {
        let shares = |row: Option<&TaskRecord>| row.is_some_and(|row| row.merged_into == Some(leader));
        let mut merged = Vec::new();
        for (task, live_task) in self.tasks.iter().enumerate() {
            let task = task as u32;
            if shares(live_task.record.as_deref()) {
                merged.push(TaskKey::of(task));
            }
            let items = live_task.for_each.iter().flat_map(|each| each.items.iter().enumerate());
            let items = items.filter(|(_, item)| shares(item.record.as_deref()));
            merged.extend(items.map(|(item, _)| TaskKey::item(task, item as u32)));
        }
        merged
    }

    /// Display name: the task's name, with the item number if any.
    pub fn name_of(&self, task_key: TaskKey) -> String {
        let name = &self.task(task_key).name;
        task_key.item.map_or_else(|| name.to_string(), |item| format!("{name}[{item}]"))
    }
}

/// Readiness of a task that has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Waiting,
    Ready,
    UpstreamFailed(u32),
    /// An earlier epoch did not succeed.
    EpochFailed(u32),
    NotChosen(u32),
    AllSkipped,
}
