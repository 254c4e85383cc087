//! Start of tasks and items.

use model::change::Change;
use model::id::WorkflowId;
use model::json::Json;
use model::reason::{Reason, ReasonCode};
use model::spec::{Digest, ExecutorKind, PackedSpec};
use model::time::Millis;
use model::workflow::{TaskKey, TaskState};
use serde_json::Value;
use workflow::plan::TaskWork;

use super::decide::TaskAction;
use super::live::ForEachState;
use super::settle::TaskEnd;
use super::work::WorkResult;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Begins a task or an item. No effect if it has begun.
    pub(super) fn begin(&mut self, id: WorkflowId, task_key: TaskKey, step: &mut Step) -> WorkResult {
        let Some(workflow) = self.workflows.map.get(&id) else {
            self.anomalies.note(Anomaly::MissingWorkflow(id), "begin");
            return WorkResult::Done;
        };
        if workflow.state(task_key) != TaskState::Waiting {
            return WorkResult::Done;
        }
        if let Some((task, packed)) = &workflow.packed
            && *task == task_key.task
            && task_key.item.is_some()
        {
            let packed = packed.clone();
            return self.begin_job(id, task_key, packed, None, step);
        }
        match workflow.decide(task_key, self.now) {
            TaskAction::Skip => {
                let end = TaskEnd::with_reason(TaskState::Skipped, Reason::new(ReasonCode::ConditionFalse));
                self.settle(id, task_key, end, step);
            }
            TaskAction::Fail(reason) => {
                self.stats.workflows.template_errors += 1;
                self.settle(id, task_key, TaskEnd::with_reason(TaskState::Failed, reason), step);
            }
            TaskAction::ForEach(items) => self.begin_items(id, task_key.task, items, step),
            TaskAction::Job { spec, merge } => {
                if let Some(key) = merge
                    && self.merge(id, task_key, key, step)
                {
                    return WorkResult::Done;
                }
                let packed = spec.pack();
                self.cache_packed(id, task_key, &packed);
                let outcome = self.begin_job(id, task_key, packed, None, step);
                let now = self.now;
                if let (WorkResult::Done, Some(_), Some(workflow)) = (outcome, merge, self.workflows.map.get_mut(&id))
                    && let Some(row) = workflow.row_mut(task_key, now)
                {
                    row.merge_key = merge;
                }
                return outcome;
            }
            TaskAction::Approval { spec, message } => {
                return self.begin_job(id, task_key, spec.pack(), Some(message), step);
            }
            TaskAction::Child { plan, inputs } => return self.begin_child(id, task_key, plan, inputs, step),
            TaskAction::Sleep { due } => self.begin_waiting(id, task_key, TaskState::Sleeping, Some(due), step),
            TaskAction::Listen { signal, due } => self.listen(id, task_key, signal, due, step),
            TaskAction::Choose(case) => self.choose_case(id, task_key, case, step),
        }
        WorkResult::Done
    }

    /// Caches the packed job if all items of the task have the same one.
    fn cache_packed(&mut self, id: WorkflowId, task_key: TaskKey, packed: &PackedSpec) {
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "cache packed");
        };
        let task = &workflow.plan.tasks[task_key.task as usize];
        // Only echo jobs have no environment variables with the item's number.
        let same = matches!(&task.work, TaskWork::Job(template) if template.is_constant())
            && packed.executor == ExecutorKind::Echo
            && task.timeout.is_none()
            && task.merge.is_none();
        if same && task_key.item.is_some() {
            workflow.packed = Some((task_key.task, packed.clone()));
        }
    }

    /// Publishes the state of a task or item.
    pub(super) fn announce_task(&mut self, id: WorkflowId, task_key: TaskKey, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "announce task");
        };
        step.announce(&Change::Task {
            workflow: id,
            queue: workflow.record.queue,
            task_key,
            state: workflow.state(task_key),
            at: self.now,
            reason: workflow.row(task_key).and_then(|row| row.reason.as_ref()).map(|reason| reason.code),
        });
    }

    /// Begins a `for_each` task.
    fn begin_items(&mut self, id: WorkflowId, task: u32, items: Vec<Value>, step: &mut Step) {
        let now = self.now;
        let task_key = TaskKey::of(task);
        let count = items.len() as u32;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "begin items");
        };
        let list = (!workflow.task(task_key).needs.is_empty()).then(|| Json::of(&items));
        let bytes = list.as_ref().map_or(0, |list| list.as_bytes().len());
        workflow.tasks[task as usize].for_each = Some(Box::new(ForEachState::new(items)));
        workflow.record.items.add(TaskState::Waiting, count);
        if let Some(row) = workflow.enter(task_key, TaskState::Running, now) {
            row.items = Some(count);
            row.list = list;
        }
        workflow.queue_items(task);
        self.workflows.wake(id);
        self.backlog.add_written(super::flush::ROW_BYTES + bytes);
        self.announce_task(id, task_key, step);
        if count == 0 {
            let end =
                TaskEnd { result: Some(Json::of(&Value::Array(Vec::new()))), ..TaskEnd::of(TaskState::Succeeded) };
            self.settle(id, task_key, end, step);
        }
    }

    /// Begins a task or item that waits for a time or a signal.
    pub(super) fn begin_waiting(
        &mut self,
        id: WorkflowId,
        task_key: TaskKey,
        state: TaskState,
        due: Option<Millis>,
        step: &mut Step,
    ) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "begin waiting");
        };
        if let Some(row) = workflow.enter(task_key, state, now) {
            row.due = due;
        }
        if let Some(due) = due {
            self.workflows.arm_task(due, id, task_key);
        }
        self.backlog.add_written(super::flush::ROW_BYTES);
        self.announce_task(id, task_key, step);
    }

    /// Merges a task or item into one with the same merge key. False: there is none, it becomes the leader.
    fn merge(&mut self, id: WorkflowId, task_key: TaskKey, key: Digest, step: &mut Step) -> bool {
        let now = self.now;
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            self.anomalies.note(Anomaly::MissingWorkflow(id), "merge");
            return false;
        };
        // A leader without a row waits for a limit of live jobs: any task may take over and become the leader.
        let leader = workflow.merges.get(&key).copied().filter(|leader| workflow.row(*leader).is_some());
        let Some(leader) = leader else {
            workflow.merges.insert(key, task_key);
            return false;
        };
        let Some(workflow) = self.workflows.touch(id) else {
            self.anomalies.note(Anomaly::MissingWorkflow(id), "merge");
            return false;
        };
        let ended = workflow.state(leader).is_terminal();
        if let Some(row) = workflow.enter(task_key, TaskState::Merged, now) {
            row.merged_into = Some(leader);
        }
        if !ended {
            workflow.followers.entry(leader).or_default().push(task_key);
        }
        self.backlog.add_written(super::flush::ROW_BYTES);
        self.announce_task(id, task_key, step);
        if ended {
            self.copy_leader_outcome(id, task_key, step);
        }
        true
    }

    /// Ends a switch with its chosen case.
    fn choose_case(&mut self, id: WorkflowId, task_key: TaskKey, case: u32, step: &mut Step) {
        let now = self.now;
        if let Some(row) = self.workflows.touch(id).and_then(|workflow| workflow.row_mut(task_key, now)) {
            row.chosen = Some(case);
        }
        let end = TaskEnd { result: Some(Json::of(&case)), ..TaskEnd::of(TaskState::Succeeded) };
        self.settle(id, task_key, end, step);
    }
}
