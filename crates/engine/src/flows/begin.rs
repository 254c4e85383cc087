//! Beginning a task.

use model::change::Change;
use model::id::WorkflowId;
use model::json::Json;
use model::reason::{Reason, ReasonCode};
use model::spec::{Digest, Lane, PackedSpec};
use model::time::Millis;
use model::workflow::{Place, TaskState};
use serde_json::Value;
use workflow::plan::Act;

use super::decide::Deed;
use super::flow::Each;
use super::settle::End;
use super::work::Did;
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Begins the task, or the item, at a place that has not begun.
    pub(super) fn begin(&mut self, id: WorkflowId, place: Place, step: &mut Step) -> Did {
        let Some(flow) = self.flows.map.get(&id) else { return Did::It };
        if flow.state(place) != TaskState::Waiting {
            return Did::It;
        }
        if let Some((task, packed)) = &flow.packed
            && *task == place.task
            && place.item.is_some()
        {
            let packed = packed.clone();
            return self.begin_job(id, place, packed, None, step);
        }
        match flow.decide(place, self.now) {
            Deed::Skip => {
                self.settle(id, place, End::bare(TaskState::Skipped, Reason::new(ReasonCode::ConditionFalse)), step)
            }
            Deed::Fail(reason) => {
                self.stats.flows.template_errors += 1;
                self.settle(id, place, End::bare(TaskState::Failed, reason), step);
            }
            Deed::Each(items) => self.begin_items(id, place.task, items, step),
            Deed::Job { spec, merge } => {
                if let Some(key) = merge
                    && self.merge(id, place, key, step)
                {
                    return Did::It;
                }
                let packed = spec.pack();
                self.keep_packed(id, place, &packed);
                let did = self.begin_job(id, place, packed, None, step);
                let now = self.now;
                if let (Did::It, Some(_), Some(flow)) = (did, merge, self.flows.map.get_mut(&id))
                    && let Some(row) = flow.row_mut(place, now)
                {
                    row.merge_key = merge;
                }
                return did;
            }
            Deed::Approval { spec, message } => return self.begin_job(id, place, spec.pack(), Some(message), step),
            Deed::Child { plan, inputs } => return self.begin_child(id, place, plan, inputs, step),
            Deed::Sleep { due } => self.begin_waiting(id, place, TaskState::Sleeping, Some(due), step),
            Deed::Listen { signal, due } => self.listen(id, place, signal, due, step),
            Deed::Choose(case) => self.choose_case(id, place, case, step),
        }
        Did::It
    }

    /// Of a list whose items all do the very same, what they do is made once.
    fn keep_packed(&mut self, id: WorkflowId, place: Place, packed: &PackedSpec) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let task = &flow.plan.tasks[place.task as usize];
        // Only an echo is told nothing about its place.
        let same = matches!(&task.act, Act::Job(template) if template.is_constant())
            && packed.lane == Lane::Echo
            && task.timeout.is_none()
            && task.merge.is_none();
        if same && place.item.is_some() {
            flow.packed = Some((place.task, packed.clone()));
        }
    }

    /// Tells subscribers of the state that a place is in.
    pub(super) fn tell_task(&self, id: WorkflowId, place: Place, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id) else { return };
        step.tell(&Change::Task {
            workflow: id,
            queue: flow.record.queue,
            place,
            state: flow.state(place),
            at: self.now,
            reason: flow.row(place).and_then(|row| row.reason.as_ref()).map(|reason| reason.code),
        });
    }

    fn begin_items(&mut self, id: WorkflowId, task: u32, items: Vec<Value>, step: &mut Step) {
        let now = self.now;
        let place = Place::of(task);
        let count = items.len() as u32;
        let Some(flow) = self.flows.touch(id) else { return };
        let list = (!flow.task(place).needs.is_empty()).then(|| Json::of(&items));
        let bytes = list.as_ref().map_or(0, |list| list.as_bytes().len());
        flow.slots[task as usize].each = Some(Box::new(Each::new(items)));
        flow.record.items.add(TaskState::Waiting, count);
        if let Some(row) = flow.enter(place, TaskState::Running, now) {
            row.items = Some(count);
            row.list = list;
        }
        flow.go_on_with(task);
        self.flows.wake(id);
        self.dirty_bytes += super::flush::ROW_BYTES + bytes;
        self.tell_task(id, place, step);
        if count == 0 {
            let end = End { result: Some(Json::of(&Value::Array(Vec::new()))), ..End::of(TaskState::Succeeded) };
            self.settle(id, place, end, step);
        }
    }

    /// A place that waits for a time or a signal.
    pub(super) fn begin_waiting(
        &mut self,
        id: WorkflowId,
        place: Place,
        state: TaskState,
        due: Option<Millis>,
        step: &mut Step,
    ) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        if let Some(row) = flow.enter(place, state, now) {
            row.due = due;
        }
        if let Some(due) = due {
            self.flows.arm_place(due, id, place);
        }
        self.dirty_bytes += super::flush::ROW_BYTES;
        self.tell_task(id, place, step);
    }

    /// Lets a place share the result of one that does the very same, if there is one.
    fn merge(&mut self, id: WorkflowId, place: Place, key: Digest, step: &mut Step) -> bool {
        let now = self.now;
        let Some(flow) = self.flows.map.get_mut(&id) else { return false };
        let Some(leader) = flow.merges.get(&key).copied() else {
            flow.merges.insert(key, place);
            return false;
        };
        if leader == place {
            // It had no room when it was to begin before.
            return false;
        }
        let Some(flow) = self.flows.touch(id) else { return false };
        let ended = flow.state(leader).is_terminal();
        if let Some(row) = flow.enter(place, TaskState::Merged, now) {
            row.merged_into = Some(leader);
        }
        if !ended {
            flow.followers.entry(leader).or_default().push(place);
        }
        self.dirty_bytes += super::flush::ROW_BYTES;
        self.tell_task(id, place, step);
        if ended {
            self.share(id, place, step);
        }
        true
    }

    fn choose_case(&mut self, id: WorkflowId, place: Place, case: u32, step: &mut Step) {
        let now = self.now;
        if let Some(row) = self.flows.touch(id).and_then(|flow| flow.row_mut(place, now)) {
            row.chosen = Some(case);
        }
        let end = End { result: Some(Json::of(&case)), ..End::of(TaskState::Succeeded) };
        self.settle(id, place, end, step);
    }
}
