//! One workflow in memory.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::id::WorkflowId;
use model::json::Json;
use model::reason::{Reason, ReasonCode};
use model::spec::{Digest, PackedSpec};
use model::time::{Millis, Timestamp};
use model::workflow::{Place, Signal, TaskRecord, TaskState, Workflow, WorkflowState};
use serde_json::Value;
use workflow::Plan;
use workflow::plan::{Act, Case, OnFailure, Task};

use crate::shard::Map;

/// A workflow with what is derived from its record.
#[derive(Debug)]
pub(crate) struct Flow {
    pub record: Workflow,
    pub plan: Arc<Plan>,
    pub inputs: Value,
    /// The slot of its schedule, as templates read it.
    pub slot_text: Option<Box<str>>,
    pub slots: Vec<Slot>,
    /// How many tasks of each epoch have not ended.
    pub open_in_epoch: Vec<u32>,
    /// Tasks whose time has come.
    pub ready: VecDeque<u32>,
    /// Tasks that will not run, and what becomes of them.
    pub doomed: VecDeque<(u32, TaskState, Reason)>,
    /// Places that share a result that is there.
    pub sharing: VecDeque<Place>,
    /// Tasks with items that may begin.
    pub eaching: VecDeque<u32>,
    /// While it is being stopped: how far its tasks have been told.
    pub told: Option<Place>,
    /// A task has failed, and that is not tolerated.
    pub failure: Option<Reason>,
    /// The first epoch in which one did: later ones do not begin.
    pub failed_epoch: Option<u32>,
    pub merges: Map<Digest, Place>,
    pub followers: BTreeMap<Place, Vec<Place>>,
    pub listeners: BTreeMap<Box<str>, VecDeque<Place>>,
    pub signals: BTreeMap<u32, Signal>,
    /// Its sub-workflows in memory.
    pub children: BTreeSet<WorkflowId>,
    /// What is still to be undone, the next one last.
    pub stack: Vec<(u32, Place)>,
    /// What is being undone.
    pub undoing: Option<Place>,
    pub dirty: bool,
    pub dirty_rows: Vec<Place>,
    /// There is a record of it under `Workflows`.
    pub stored: bool,
    /// There is a record of it under `WorkflowsDone`.
    pub was_done: bool,
    /// It goes to the ended ones with the next flush.
    pub files: bool,
    /// It stands in the line of those with something to do.
    pub queued: bool,
    /// Whether any of its tasks can be undone.
    pub can_undo: bool,
    /// Its queue stays for it.
    pub holds_queue: bool,
    /// The job of a task that is the same for every item, as it was last made.
    pub packed: Option<(u32, PackedSpec)>,
}

/// One task.
#[derive(Debug)]
pub(crate) struct Slot {
    pub state: TaskState,
    pub dirty: bool,
    /// It is known already that it will not begin.
    pub doomed: bool,
    /// How many of its needs have not ended well enough.
    pub open_needs: u32,
    /// As soon as it has begun.
    pub record: Option<Box<TaskRecord>>,
    pub each: Option<Box<Each>>,
    /// Its result as templates read it, once one has.
    pub value: OnceCell<Box<Value>>,
}

/// The items of a task that runs for each of a list.
#[derive(Debug)]
pub(crate) struct Each {
    pub items: Vec<Value>,
    pub slots: Vec<ItemSlot>,
    /// Items from here on have not begun.
    pub next: u32,
    pub live: u32,
    /// How many have not ended.
    pub left: u32,
    pub failure: Option<Reason>,
    /// How much the results of its items take together.
    pub bytes: usize,
    /// It stands in [`Flow::eaching`].
    pub queued: bool,
}

#[derive(Debug)]
pub(crate) struct ItemSlot {
    pub state: TaskState,
    pub dirty: bool,
    pub record: Option<Box<TaskRecord>>,
}

impl Each {
    pub fn new(items: Vec<Value>) -> Self {
        let count = items.len();
        let blank = || ItemSlot { state: TaskState::Waiting, dirty: false, record: None };
        Self {
            items,
            slots: std::iter::repeat_with(blank).take(count).collect(),
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
        (self.next as usize) < self.slots.len() && concurrency.is_none_or(|most| self.live < most)
    }
}

/// What the end of a task means for those that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Open,
    Good,
    Skipped,
    Bad,
}

impl Flow {
    /// A workflow none of whose tasks has begun.
    pub fn new(record: Workflow, plan: Arc<Plan>, inputs: Value) -> Self {
        let slots = plan.tasks.iter().map(|task| Slot {
            state: TaskState::Waiting,
            dirty: false,
            doomed: false,
            open_needs: task.needs.len() as u32,
            record: None,
            each: None,
            value: OnceCell::new(),
        });
        let mut open_in_epoch = vec![0; plan.epochs.len().max(1)];
        for task in &plan.tasks {
            open_in_epoch[task.epoch as usize] += 1;
        }
        Self {
            slot_text: record.schedule.map(|from| Timestamp(from.slot).to_string().into()),
            slots: slots.collect(),
            open_in_epoch,
            ready: VecDeque::new(),
            doomed: VecDeque::new(),
            sharing: VecDeque::new(),
            eaching: VecDeque::new(),
            told: None,
            failure: None,
            failed_epoch: None,
            merges: Map::default(),
            followers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            signals: BTreeMap::new(),
            children: BTreeSet::new(),
            stack: Vec::new(),
            undoing: None,
            dirty: false,
            dirty_rows: Vec::new(),
            stored: false,
            was_done: false,
            files: false,
            queued: false,
            holds_queue: false,
            packed: None,
            can_undo: plan
                .tasks
                .iter()
                .any(|task| task.compensation.is_some() || matches!(task.act, Act::Workflow { .. })),
            record,
            plan,
            inputs,
        }
    }

    pub fn task(&self, place: Place) -> &Task {
        &self.plan.tasks[place.task as usize]
    }

    pub fn state(&self, place: Place) -> TaskState {
        let slot = &self.slots[place.task as usize];
        match place.item {
            None => slot.state,
            Some(item) => slot
                .each
                .as_ref()
                .and_then(|each| each.slots.get(item as usize))
                .map_or(TaskState::Waiting, |item| item.state),
        }
    }

    pub fn row(&self, place: Place) -> Option<&TaskRecord> {
        let slot = &self.slots[place.task as usize];
        match place.item {
            None => slot.record.as_deref(),
            Some(item) => slot.each.as_ref()?.slots.get(item as usize)?.record.as_deref(),
        }
    }

    /// The row of a place that is about to change: it is written with the next flush. A place that has not begun gets one.
    pub fn row_mut(&mut self, place: Place, now: Millis) -> Option<&mut TaskRecord> {
        let slot = self.slots.get_mut(place.task as usize)?;
        let (state, dirty, record) = match place.item {
            None => (slot.state, &mut slot.dirty, &mut slot.record),
            Some(item) => {
                let item = slot.each.as_mut()?.slots.get_mut(item as usize)?;
                (item.state, &mut item.dirty, &mut item.record)
            }
        };
        if !*dirty {
            *dirty = true;
            self.dirty_rows.push(place);
        }
        // What was read of it may be read anew.
        if place.item.is_none() {
            slot.value.take();
        }
        Some(record.get_or_insert_with(|| Box::new(TaskRecord::new(state, now))))
    }

    /// Moves a place to another state: its row and the tallies follow.
    pub fn enter(&mut self, place: Place, state: TaskState, now: Millis) -> Option<&mut TaskRecord> {
        let from = self.state(place);
        let slot = &mut self.slots[place.task as usize];
        match place.item {
            None => {
                slot.state = state;
                self.record.tasks.shift(from, state);
                if from.is_terminal() != state.is_terminal() {
                    let open = &mut self.open_in_epoch[self.plan.tasks[place.task as usize].epoch as usize];
                    *open = if state.is_terminal() { *open - 1 } else { *open + 1 };
                }
            }
            Some(item) => {
                let each = slot.each.as_mut()?;
                each.slots.get_mut(item as usize)?.state = state;
                each.live = each.live + u32::from(state.is_live()) - u32::from(from.is_live());
                each.left = each.left + u32::from(from.is_terminal()) - u32::from(state.is_terminal());
                self.record.items.shift(from, state);
            }
        }
        let row = self.row_mut(place, now)?;
        row.state = state;
        if state.is_terminal() {
            row.ended_at = Some(now);
        }
        Some(row)
    }

    /// What a task's end, if it has ended, means for those that need it.
    pub fn class(&self, task: u32) -> Class {
        let slot = &self.slots[task as usize];
        let upstream = |row: &TaskRecord| row.reason.as_ref().is_some_and(|why| why.code == ReasonCode::UpstreamFailed);
        let tolerated = self.plan.tasks[task as usize].on_failure == OnFailure::Continue
            && !slot.record.as_deref().is_some_and(upstream);
        match slot.state {
            TaskState::Waiting
            | TaskState::Running
            | TaskState::Sleeping
            | TaskState::Listening
            | TaskState::Merged => Class::Open,
            TaskState::Succeeded => Class::Good,
            TaskState::Failed | TaskState::Cancelled | TaskState::Quarantined if tolerated => Class::Good,
            TaskState::Skipped => Class::Skipped,
            TaskState::Failed | TaskState::Cancelled | TaskState::Quarantined => Class::Bad,
        }
    }

    /// Whether a switch has chosen other tasks than this one.
    pub fn is_not_chosen(&self, switch: u32, task: u32) -> bool {
        let Act::Switch(cases) = &self.plan.tasks[switch as usize].act else { return false };
        let Some(row) = &self.slots[switch as usize].record else { return false };
        let chosen = row.chosen.and_then(|case| cases.get(case as usize));
        // They are sorted: there may be very many.
        let names = |case: &Case| case.then.binary_search(&task).is_ok();
        cases.iter().any(names) && !chosen.is_some_and(names)
    }

    /// What becomes of a task that has not begun, as far as its needs say so by now.
    pub fn fate(&self, task: u32) -> Fate {
        let plan = &self.plan.tasks[task as usize];
        if let Some(epoch) = self.failed_epoch.filter(|failed| plan.epoch > *failed) {
            return Fate::EpochFailed(epoch);
        }
        let mut skipped = 0;
        let mut open = false;
        for need in &plan.needs {
            match self.class(*need) {
                Class::Open => open = true,
                Class::Bad => return Fate::UpstreamFailed(*need),
                Class::Skipped => skipped += 1,
                Class::Good if self.is_not_chosen(*need, task) => return Fate::NotChosen(*need),
                Class::Good => {}
            }
        }
        match (open, skipped > 0 && skipped == plan.needs.len()) {
            (true, _) => Fate::Waits,
            (false, true) => Fate::AllSkipped,
            (false, false) if plan.epoch > self.record.epoch => Fate::Waits,
            (false, false) => Fate::Ready,
        }
    }

    pub fn is_going(&self) -> bool {
        matches!(self.record.state, WorkflowState::Running | WorkflowState::Paused)
    }

    pub fn is_settled(&self) -> bool {
        self.open_in_epoch.iter().all(|open| *open == 0)
    }

    /// Whether the end of a task is counted, so that it can be undone in the opposite order.
    pub fn is_undoable(&self, place: Place) -> bool {
        let task = self.task(place);
        let is_whole = place.item.is_none() && task.for_each.is_some();
        !is_whole && (task.compensation.is_some() || matches!(task.act, Act::Workflow { .. }))
    }

    /// The result that a place has, or shares.
    pub fn result_of(&self, place: Place) -> Option<&Json> {
        let row = self.row(place)?;
        match row.merged_into {
            Some(leader) if row.state == TaskState::Succeeded => self.row(leader)?.result.as_ref(),
            Some(_) | None => row.result.as_ref(),
        }
    }

    /// The places that share the result of this one.
    pub fn sharers(&self, leader: Place) -> Vec<Place> {
        let shares = |row: Option<&TaskRecord>| row.is_some_and(|row| row.merged_into == Some(leader));
        let mut sharers = Vec::new();
        for (task, slot) in self.slots.iter().enumerate() {
            let task = task as u32;
            if shares(slot.record.as_deref()) {
                sharers.push(Place::of(task));
            }
            let items = slot.each.iter().flat_map(|each| each.slots.iter().enumerate());
            let items = items.filter(|(_, item)| shares(item.record.as_deref()));
            sharers.extend(items.map(|(item, _)| Place::item(task, item as u32)));
        }
        sharers
    }

    /// How a task is called in messages: its name, with the number of its item.
    pub fn name_of(&self, place: Place) -> String {
        let name = &self.task(place).name;
        place.item.map_or_else(|| name.to_string(), |item| format!("{name}[{item}]"))
    }
}

/// What becomes of a task that has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Waits,
    Ready,
    UpstreamFailed(u32),
    /// An earlier epoch did not succeed.
    EpochFailed(u32),
    NotChosen(u32),
    AllSkipped,
}
