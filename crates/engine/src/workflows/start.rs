//! Start of workflows: by request, by a schedule, or as a sub-workflow.

use std::sync::Arc;

use bytes::Bytes;
use model::batch::Keyspace;
use model::codec;
use model::id::{QueueId, WorkflowId};
use model::json::Json;
use model::key::{CreatedObject, KeyEntry};
use model::limits;
use model::reason::{Reason, ReasonCode};
use model::spec::{Digest, KeyHash};
use model::workflow::{
    FromSchedule, Note, NoteKind, Tally, TaskKey, TaskState, Totals, Workflow, WorkflowSpec, WorkflowState,
};
use serde_json::Value;
use workflow::Plan;

use super::live::LiveWorkflow;
use super::scope::value_of;
use super::settle::TaskEnd;
use super::work::WorkResult;
use crate::anomaly::Anomaly;
use crate::input::{Actor, Answer, NewWorkflow, Refusal, RequestId};
use crate::keys::KeyWaiter;
use crate::shard::Shard;
use crate::step::Step;

/// Origin of a new workflow.
pub(super) struct WorkflowSource {
    pub queue: QueueId,
    pub tenant: String,
    pub submitter: Actor,
    pub labels: std::collections::BTreeMap<String, String>,
    pub parent: Option<(WorkflowId, TaskKey)>,
    pub schedule: Option<FromSchedule>,
    pub depth: u32,
    pub deadline: Option<model::time::Millis>,
}

impl Shard {
    /// Starts a workflow, after the lookup of its idempotency key if it has one.
    pub(crate) fn start_workflow(&mut self, request: RequestId, new: Box<NewWorkflow>, step: &mut Step) {
        match new.key {
            None => {
                let answer = self.start_new(*new, step);
                step.answer(request, answer);
            }
            Some((key, digest)) => match self.known_key(key) {
                Some(entry) => {
                    let answer = self.recall_workflow(entry, digest);
                    step.answer(request, answer);
                }
                None => self.wait_for_key(key, KeyWaiter::Workflow { request, workflow: new }),
            },
        }
    }

    /// Starts a workflow once the store has looked up its idempotency key. Returns the key's entry from now on.
    pub(crate) fn start_keyed_workflow(
        &mut self,
        request: RequestId,
        new: NewWorkflow,
        known: Option<KeyEntry>,
        step: &mut Step,
    ) -> Option<KeyEntry> {
        let Some((key, digest)) = new.key else { return known };
        if let Some(entry) = known {
            let answer = self.recall_workflow(entry, digest);
            step.answer(request, answer);
            return known;
        }
        let answer = self.start_new(new, step);
        let made = match &answer {
            Answer::Workflow(record) => Some(self.note_workflow_key(key, digest, record.id, step)),
            _ => None,
        };
        step.answer(request, answer);
        made
    }

    fn note_workflow_key(&mut self, key: KeyHash, digest: Digest, id: WorkflowId, step: &mut Step) -> KeyEntry {
        self.note_key(key, digest, CreatedObject::Workflow { id }, step)
    }

    /// Answers a start whose key is known: the existing workflow, or a conflict.
    fn recall_workflow(&mut self, entry: KeyEntry, digest: Digest) -> Answer {
        match entry.made {
            CreatedObject::Workflow { id } if entry.digest == digest => {
                self.stats.deduplicated += 1;
                Answer::WorkflowExists(id)
            }
            CreatedObject::Workflow { .. }
            | CreatedObject::Job { .. }
            | CreatedObject::Queue { .. }
            | CreatedObject::Schedule { .. }
            | CreatedObject::Claimed { .. } => Answer::Refused(Refusal::KeyConflict),
        }
    }

    fn start_new(&mut self, new: NewWorkflow, step: &mut Step) -> Answer {
        match self.try_start(new, step) {
            Ok(id) => match self.workflows.map.get(&id) {
                Some(workflow) => Answer::Workflow(Box::new(workflow.record.clone())),
                None => Answer::Refused(Refusal::UnknownWorkflow(id)),
            },
            Err(refusal) => {
                self.stats.refused += 1;
                Answer::Refused(refusal)
            }
        }
    }

    fn try_start(&mut self, new: NewWorkflow, step: &mut Step) -> Result<WorkflowId, Refusal> {
        self.room_for_workflow()?;
        let queue = match new.queue {
            Some(reference) => self.find_open_queue(reference, &new.tenant)?,
            None => self.implicit_queue(&new.tenant, step)?,
        };
        if new.key.is_some() {
            self.count_key(&new.tenant, step)?;
        }
        let source = WorkflowSource {
            queue,
            tenant: new.tenant,
            submitter: new.submitter,
            labels: new.labels,
            parent: None,
            schedule: None,
            depth: 0,
            deadline: None,
        };
        let value = value_of(&new.inputs);
        Ok(self.add_workflow(source, new.plan, new.inputs, value, step))
    }

    /// Refuses if the shard is at its limit of workflows or of live jobs.
    pub(super) fn room_for_workflow(&self) -> Result<(), Refusal> {
        if self.workflows.map.len() >= self.config.workflows_max || self.jobs.len() >= self.config.live_jobs_max {
            return Err(Refusal::Full { retry_after: self.config.retry_after });
        }
        Ok(())
    }

    /// Creates a workflow. Its first tasks begin with the next work of this step.
    pub(super) fn add_workflow(
        &mut self,
        source: WorkflowSource,
        plan: Arc<Plan>,
        inputs: Json,
        value: Value,
        step: &mut Step,
    ) -> WorkflowId {
        let now = self.now;
        let id = WorkflowId(self.ids.next(self.now, source.queue.slot()));
        let own_deadline = plan.timeout.map(|timeout| now + timeout);
        let deadline = [own_deadline, source.deadline].into_iter().flatten().min();
        let started =
            Note { at: now, kind: NoteKind::Started, by: source.submitter.clone(), task_key: None, text: None };
        let record = Workflow {
            id,
            queue: source.queue,
            name: plan.name.to_string(),
            tenant: source.tenant,
            state: WorkflowState::Running,
            created_at: now,
            since: now,
            run: 1,
            submitter: source.submitter,
            parent: source.parent,
            schedule: source.schedule,
            tasks: Tally::waiting(plan.tasks.len() as u32),
            items: Tally::default(),
            totals: Totals::default(),
            last_order: 0,
            epoch: 0,
            reason: None,
            after_stop: None,
            rollback: None,
            notes: vec![started],
            notes_dropped: 0,
            result: None,
            deadline,
            labels: source.labels,
            next_signal: 0,
            depth: source.depth,
            removing: false,
            definition: Some(plan.digest),
        };
        self.use_definition(plan.digest, &plan.source, id.0, step);
        let spec = WorkflowSpec { digest: plan.digest, definition: Bytes::new(), inputs };
        step.batch.put_with(Keyspace::WorkflowSpecs, &id.key(), |buffer| codec::encode_into(&spec, buffer));
        if let Some(deadline) = deadline {
            self.workflows.arm_deadline(deadline, id);
        }
        self.workflows.map.insert(id, Box::new(LiveWorkflow::new(record, plan, value)));
        self.hold_queue(id);
        if let Some((parent, _)) = source.parent
            && let Some(parent) = self.workflows.map.get_mut(&parent)
        {
            parent.children.insert(id);
        }
        self.workflows.touch(id);
        self.backlog.add_written(super::flush::WORKFLOW_BYTES);
        self.stats.workflows.started += 1;
        self.announce_workflow(id, step);
        self.evaluate_waiting_tasks(id, step);
        id
    }

    /// Evaluates every task that has not begun: it becomes ready, is excluded, or goes on waiting.
    pub(super) fn evaluate_waiting_tasks(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "evaluate waiting tasks");
        };
        let is_waiting = |(_, live_task): &(usize, &super::live::LiveTask)| live_task.state == TaskState::Waiting;
        let waiting: Vec<u32> =
            workflow.tasks.iter().enumerate().filter(is_waiting).map(|(number, _)| number as u32).collect();
        // In a new workflow tasks with needs cannot be ready: skip them.
        let fresh = workflow.record.tasks.total() as usize == waiting.len();
        for task in waiting {
            let open = self.workflows.map.get(&id).map_or(0, |workflow| workflow.tasks[task as usize].open_needs);
            if !fresh || open == 0 {
                self.evaluate_task(id, task);
            }
        }
        self.advance_epochs(id);
        self.check_settled(id, step);
    }

    /// Starts a sub-workflow.
    pub(super) fn begin_child(
        &mut self,
        id: WorkflowId,
        task_key: TaskKey,
        plan: Arc<Plan>,
        inputs: Value,
        step: &mut Step,
    ) -> WorkResult {
        let now = self.now;
        let Some(workflow) = self.workflows.map.get(&id) else {
            self.anomalies.note(Anomaly::MissingWorkflow(id), "begin child");
            return WorkResult::Done;
        };
        // Parents that wait for sub-workflows must not use up the limit: sub-workflows have twice the limit.
        // Beyond it waiting could last for ever, so the task fails.
        if self.workflows.map.len() >= self.config.workflows_max.saturating_mul(2) {
            let message = "too many workflows on this shard; start fewer sub-workflows at once";
            let reason = Reason::with(ReasonCode::TooManyWorkflows, message);
            self.settle(id, task_key, TaskEnd::with_reason(TaskState::Failed, reason), step);
            return WorkResult::Done;
        }
        if workflow.record.depth + 1 >= limits::WORKFLOW_DEPTH_MAX {
            let message = format!("workflows can be nested at most {} levels deep", limits::WORKFLOW_DEPTH_MAX);
            let reason = Reason::with(ReasonCode::TemplateError, message);
            self.settle(id, task_key, TaskEnd::with_reason(TaskState::Failed, reason), step);
            return WorkResult::Done;
        }
        let source = WorkflowSource {
            queue: workflow.record.queue,
            tenant: workflow.record.tenant.clone(),
            submitter: workflow.record.submitter.clone(),
            labels: workflow.record.labels.clone(),
            parent: Some((id, task_key)),
            schedule: None,
            depth: workflow.record.depth + 1,
            deadline: workflow.task(task_key).timeout.map(|timeout| now + timeout),
        };
        let json = Json::of(&inputs);
        let child = self.add_workflow(source, plan, json, inputs, step);
        if let Some(workflow) = self.workflows.touch(id)
            && let Some(row) = workflow.enter(task_key, TaskState::Running, now)
        {
            row.child = Some(child);
        }
        self.backlog.add_written(super::flush::ROW_BYTES);
        self.announce_task(id, task_key, step);
        WorkResult::Done
    }

    /// Applies the end, or the rollback, of a sub-workflow to its parent's task.
    pub(super) fn child_changed(&mut self, child: WorkflowId, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&child) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(child), "child changed");
        };
        let record = &workflow.record;
        let Some((parent, task_key)) = record.parent else { return };
        let (state, reason, result) = (record.state, record.reason.clone(), record.result.clone());
        let (rollback, totals) = (record.rollback.clone(), record.totals);
        if self.workflows.suspended.contains(&parent) {
            // Applied when another version resumes the parent.
            return;
        }
        let Some(parent_workflow) = self.workflows.touch(parent) else {
            self.anomalies.note(Anomaly::MissingWorkflow(parent), "child changed");
            return self.move_to_finished(child);
        };
        if parent_workflow.compensating == Some(task_key) {
            let done = rollback.is_none_or(|rollback| rollback.failed == 0);
            return self.compensated(parent, task_key, done, step);
        }
        if parent_workflow.state(task_key) != TaskState::Running {
            return;
        }
        let sum = &mut parent_workflow.record.totals;
        sum.cpu = sum.cpu + totals.cpu;
        sum.memory_peak_bytes = sum.memory_peak_bytes.max(totals.memory_peak_bytes);
        sum.jobs += totals.jobs;
        sum.attempts += totals.attempts;
        let end = match state {
            WorkflowState::Succeeded => TaskEnd { result, ..TaskEnd::of(TaskState::Succeeded) },
            WorkflowState::Cancelled => TaskEnd::with_reason(
                TaskState::Cancelled,
                reason.unwrap_or_else(|| Reason::new(ReasonCode::WorkflowStopped)),
            ),
            WorkflowState::Failed
            | WorkflowState::Running
            | WorkflowState::Paused
            | WorkflowState::Stopping
            | WorkflowState::RollingBack => {
                TaskEnd::with_reason(TaskState::Failed, reason.unwrap_or_else(|| Reason::new(ReasonCode::TaskFailed)))
            }
        };
        self.settle(parent, task_key, end, step);
    }
}
