//! Rehydration: rebuilds workflows from their records and rows, and resumes work that a crash interrupted.

use std::sync::Arc;

use model::id::{JobId, WorkflowId};
use model::reason::{Reason, ReasonCode};
use model::workflow::{
    CompensationState, Signal, TaskKey, TaskRecord, TaskState, Workflow, WorkflowSpec, WorkflowState,
};
use serde_json::Value;
use workflow::Plan;
use workflow::plan::TaskWork;

use super::live::{ForEachState, LiveWorkflow, OutcomeClass};
use super::scope::value_of;
use super::settle::TaskEnd;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

impl LiveWorkflow {
    /// Restores the row of a task or item. A task's row comes before its items' rows. Rows without a task in the
    /// definition are ignored.
    pub fn put_row(&mut self, task_key: TaskKey, row: TaskRecord) {
        let Some(live_task) = self.tasks.get_mut(task_key.task as usize) else { return };
        match task_key.item {
            None => {
                if let Some(items) = row.items {
                    live_task.for_each = Some(Box::new(ForEachState::new(vec![Value::Null; items as usize])));
                }
                if row.state.is_terminal() {
                    self.open_in_epoch[self.plan.tasks[task_key.task as usize].epoch as usize] -= 1;
                }
                live_task.state = row.state;
                live_task.record = Some(Box::new(row));
            }
            Some(item) => {
                let Some(each) = live_task.for_each.as_mut() else { return };
                let Some(item) = each.items.get_mut(item as usize) else { return };
                each.live += u32::from(row.state.is_live());
                each.left -= u32::from(row.state.is_terminal());
                item.state = row.state;
                item.record = Some(Box::new(row));
            }
        }
    }

    /// Derives the in-memory state from the rows.
    pub fn derive(&mut self) {
        self.open_in_epoch.fill(0);
        self.merges.clear();
        self.followers.clear();
        self.listeners.clear();
        self.ready.clear();
        self.excluded.clear();
        self.merged_ready.clear();
        self.for_each_ready.clear();
        let plan = self.plan.clone();
        for (number, task) in plan.tasks.iter().enumerate() {
            let number = number as u32;
            let open = |need: &&u32| !self.tasks[**need as usize].state.is_terminal();
            let open_needs = task.needs.iter().filter(open).count() as u32;
            let ended = self.tasks[number as usize].state.is_terminal();
            self.tasks[number as usize].open_needs = open_needs;
            self.tasks[number as usize].excluded = false;
            self.open_in_epoch[task.epoch as usize] += u32::from(!ended);
            self.derive_row(TaskKey::of(number));
            let items = self.tasks[number as usize].for_each.as_ref().map_or(0, |each| each.items.len());
            if items > 0 {
                self.derive_items(number);
            }
        }
        self.failure = self.find_failure();
        self.failed_epoch = self.find_failed_epoch();
        // Items that never began may have no rows, so the tallies are counted anew.
        (self.record.tasks, self.record.items) = super::counts::tally(self);
    }

    /// The first epoch with a failed task.
    pub fn find_failed_epoch(&self) -> Option<u32> {
        let bad = (0..self.tasks.len() as u32).filter(|task| self.outcome_class(*task) == OutcomeClass::Failure);
        bad.map(|task| self.plan.tasks[task as usize].epoch).min()
    }

    /// The workflow's failure: that of a task that failed by itself rather than of one cancelled because of it.
    pub fn find_failure(&self) -> Option<Reason> {
        let bad = (0..self.tasks.len() as u32).filter(|task| self.outcome_class(*task) == OutcomeClass::Failure);
        let is_root = |task: &u32| {
            let row = self.tasks[*task as usize].record.as_ref();
            row.and_then(|row| row.reason.as_ref()).is_none_or(|reason| reason.code != ReasonCode::UpstreamFailed)
        };
        let (roots, others): (Vec<u32>, Vec<u32>) = bad.partition(is_root);
        let task = roots.first().or(others.first())?;
        let name = &self.plan.tasks[*task as usize].name;
        let quarantined = self.tasks[*task as usize].state == TaskState::Quarantined;
        Some(if quarantined {
            Reason::with(ReasonCode::OutputQuarantined, format!("the result of `{name}` was quarantined"))
        } else {
            Reason::with(ReasonCode::TaskFailed, format!("`{name}` did not succeed"))
        })
    }

    /// Derives the state of a `for_each` task from its items' rows.
    fn derive_items(&mut self, task: u32) {
        let list = self.tasks[task as usize].record.as_ref().and_then(|row| row.list.as_ref());
        let items = match list.map(value_of) {
            Some(Value::Array(items)) => Ok(items),
            Some(_) | None => self.decide_items(task),
        };
        let all_ended = self.tasks[task as usize].state.is_terminal();
        let tolerated = self.plan.tasks[task as usize].on_failure == workflow::plan::OnFailure::Continue;
        let Some(each) = self.tasks[task as usize].for_each.as_mut() else { return };
        match items {
            Ok(items) if items.len() == each.items.len() => each.values = items,
            // Without the values no item can begin.
            Ok(_) | Err(_) => each.failure = Some(Reason::new(ReasonCode::TemplateError)),
        }
        let failed = |state| matches!(state, TaskState::Failed | TaskState::Cancelled | TaskState::Quarantined);
        if !tolerated && each.items.iter().any(|item| failed(item.state)) {
            each.failure = Some(Reason::new(ReasonCode::ItemFailed));
        }
        // Items that never began may have no row: they were cancelled, or are still waiting.
        if all_ended || each.failure.is_some() {
            for item in each.items.iter_mut().filter(|item| item.state == TaskState::Waiting) {
                item.state = TaskState::Cancelled;
            }
        }
        let bytes = |item: &super::live::LiveItem| Some(item.record.as_ref()?.result.as_ref()?.as_bytes().len());
        each.bytes = each.items.iter().filter_map(bytes).sum();
        each.live = each.items.iter().filter(|item| item.state.is_live()).count() as u32;
        each.left = each.items.iter().filter(|item| !item.state.is_terminal()).count() as u32;
        let begun = each.items.iter().rposition(|item| item.state != TaskState::Waiting);
        each.next = begun.map_or(0, |last| last as u32 + 1);
        for item in 0..self.tasks[task as usize].for_each.as_ref().map_or(0, |each| each.items.len()) {
            self.derive_row(TaskKey::item(task, item as u32));
        }
        if !all_ended {
            self.queue_items(task);
        }
    }

    /// Derives merges and listeners from the row of a task or item.
    fn derive_row(&mut self, task_key: TaskKey) {
        let Some(row) = self.row(task_key) else { return };
        let (state, key, leader) = (row.state, row.merge_key, row.merged_into);
        if let Some(key) = key {
            self.merges.insert(key, task_key);
        }
        if let Some(leader) = leader
            && state == TaskState::Merged
        {
            match self.row(leader).is_some_and(|row| row.state.is_terminal()) {
                true => self.merged_ready.push_back(task_key),
                false => self.followers.entry(leader).or_default().push(task_key),
            }
        }
        if let TaskWork::WaitFor { signal } = &self.task(task_key).work
            && state == TaskState::Listening
        {
            let signal = signal.clone();
            self.listeners.entry(signal).or_default().push_back(task_key);
        }
    }
}

impl Shard {
    /// Restores a workflow that has not ended, or is part of such a one. Call after all queues, before its rows and all
    /// jobs.
    pub fn restore_workflow(&mut self, record: Workflow, spec: &WorkflowSpec, plan: Arc<Plan>) {
        self.reserve_ids_up_to(record.id.0);
        if record.removing {
            return self.workflows.sweep.resume_removal(record);
        }
        let mut workflow = LiveWorkflow::new(record, plan, value_of(&spec.inputs));
        workflow.stored = true;
        self.stats.workflows.rolling_back += u64::from(workflow.record.state == WorkflowState::RollingBack);
        if let Some((parent, _)) = workflow.record.parent
            && let Some(parent) = self.workflows.map.get_mut(&parent)
        {
            parent.children.insert(workflow.record.id);
        }
        let id = workflow.record.id;
        if let Some(digest) = workflow.record.definition {
            self.workflows.definitions.join(digest);
        }
        self.workflows.map.insert(id, Box::new(workflow));
        self.hold_queue(id);
    }

    /// Restores the row of a task or item. A task's row comes before its items' rows.
    pub fn restore_task(&mut self, id: WorkflowId, task_key: TaskKey, row: TaskRecord) {
        if let Some(workflow) = self.workflows.map.get_mut(&id) {
            workflow.put_row(task_key, row);
        }
    }

    /// Restores a stored signal.
    pub fn restore_signal(&mut self, id: WorkflowId, number: u32, signal: Signal) {
        if let Some(workflow) = self.workflows.map.get_mut(&id) {
            workflow.signals.insert(number, signal);
        }
    }

    /// Restores a workflow that this version cannot read: it is suspended, and its jobs are left alone. Call after all
    /// queues.
    pub fn restore_unreadable_workflow(&mut self, record: Workflow) {
        if record.removing {
            self.reserve_ids_up_to(record.id.0);
            return self.workflows.sweep.resume_removal(record);
        }
        self.queues.hold(record.queue);
        self.suspend_workflow(record.id);
    }

    /// Restores a workflow whose record this version cannot read.
    pub fn suspend_workflow(&mut self, id: WorkflowId) {
        self.reserve_ids_up_to(id.0);
        self.workflows.suspended.insert(id);
    }

    /// Derives the state of all restored workflows in memory, and links sub-workflows to their parents.
    pub(crate) fn link_workflows(&mut self) {
        for id in self.workflows.sorted_ids() {
            let Some(workflow) = self.workflows.map.get_mut(&id) else {
                self.anomalies.note(Anomaly::MissingWorkflow(id), "link workflows");
                continue;
            };
            workflow.derive();
            self.track_unconfirmed(id);
            let Some(workflow) = self.workflows.map.get(&id) else { continue };
            let is_terminal = workflow.record.state.is_terminal();
            if let Some((parent, _)) = workflow.record.parent {
                match self.workflows.map.get_mut(&parent) {
                    Some(parent) => drop(parent.children.insert(id)),
                    None if self.workflows.suspended.contains(&parent) => {}
                    // The parent has finished: the sub-workflow is moved once it has ended too.
                    None if is_terminal => self.workflows.children_to_finish.push_back(id),
                    None => {}
                }
            }
        }
    }

    /// Resumes a restored workflow.
    pub(crate) fn resume_workflow_by_id(&mut self, id: WorkflowId, step: &mut Step) {
        // Resuming another workflow may have finished this one.
        if self.workflows.map.contains_key(&id) {
            self.arm_workflow(id);
            self.fail_lost_tasks(id, step);
            self.resume_one(id, step);
            self.backlog.add_written(super::flush::WORKFLOW_BYTES);
        }
    }

    /// Sets the timers of a workflow from its rows.
    fn arm_workflow(&mut self, id: WorkflowId) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "arm workflow");
        };
        let mut due = Vec::new();
        for (task, live_task) in workflow.tasks.iter().enumerate() {
            let task = task as u32;
            let items = live_task.for_each.iter().flat_map(|each| each.items.iter().enumerate());
            let items = items.map(|(item, live)| (TaskKey::item(task, item as u32), live.record.as_deref()));
            let rows = items.chain([(TaskKey::of(task), live_task.record.as_deref())]);
            due.extend(rows.filter_map(|(task_key, row)| Some((row?.due?, task_key))));
        }
        let deadline = workflow.record.deadline.filter(|_| workflow.is_active());
        for (at, task_key) in due {
            self.workflows.arm_task(at, id, task_key);
        }
        if let Some(deadline) = deadline {
            self.workflows.arm_deadline(deadline, id);
        }
    }

    /// Whether a job of a workflow is live, or its end has not been applied to the workflow yet.
    fn has_job_of_workflow(&self, job: JobId) -> bool {
        self.jobs.contains(job) || self.workflows.late_updates.contains(&job)
    }

    /// Fails running tasks whose job or sub-workflow has no record: damage, which would make them wait for ever.
    fn fail_lost_tasks(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "fail lost tasks");
        };
        let mut lost = Vec::new();
        for (task, live_task) in workflow.tasks.iter().enumerate() {
            let task = task as u32;
            let items = live_task.for_each.iter().flat_map(|each| each.items.iter().enumerate());
            let items = items.map(|(item, live)| (TaskKey::item(task, item as u32), live.record.as_deref()));
            for (task_key, row) in items.chain([(TaskKey::of(task), live_task.record.as_deref())]) {
                let Some(row) = row.filter(|row| row.state == TaskState::Running && row.items.is_none()) else {
                    continue;
                };
                let found = match (row.job, row.child) {
                    (Some(job), _) => self.has_job_of_workflow(job),
                    (None, Some(child)) => {
                        self.workflows.map.contains_key(&child) || self.workflows.suspended.contains(&child)
                    }
                    (None, None) => false,
                };
                if !found {
                    lost.push(task_key);
                }
            }
        }
        for task_key in lost {
            let reason = Reason::with(ReasonCode::JobFailed, "the record of the task's job or sub-workflow is missing");
            self.settle(id, task_key, TaskEnd::with_reason(TaskState::Failed, reason), step);
        }
    }

    /// Resumes a restored workflow in its state.
    fn resume_one(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "resume one");
        };
        match workflow.record.state {
            WorkflowState::Running | WorkflowState::Paused => {
                let queue = workflow.record.queue;
                if self.is_cancelled_queue(queue) {
                    self.workflows.to_stop.push_back(id);
                }
                self.workflows.wake(id);
                self.evaluate_waiting_tasks(id, step);
            }
            WorkflowState::Stopping => {
                workflow.stop_cursor = Some(TaskKey::of(0));
                self.workflows.wake(id);
                self.check_settled(id, step);
            }
            WorkflowState::RollingBack => {
                workflow.stack = workflow.compensation_stack();
                let compensating = workflow.compensating_task();
                workflow.compensating = compensating;
                self.workflows.wake(id);
                if let Some(task_key) = compensating {
                    self.resume_compensation(id, task_key, step);
                }
            }
            WorkflowState::Succeeded | WorkflowState::Failed | WorkflowState::Cancelled => {
                match workflow.record.parent {
                    None => self.move_to_finished(id),
                    // It may have ended while its parent was suspended.
                    Some((parent, task_key)) => {
                        let parent = self.workflows.map.get(&parent);
                        let row = parent.and_then(|parent| parent.row(task_key));
                        if row.is_some_and(|row| row.state == TaskState::Running && row.child == Some(id)) {
                            self.workflows.pending_child_updates.push_back(id);
                        }
                    }
                }
            }
        }
    }

    /// Resumes a compensation that was in progress when the server stopped.
    fn resume_compensation(&mut self, id: WorkflowId, task_key: TaskKey, step: &mut Step) {
        let Some(row) = self.workflows.map.get(&id).and_then(|workflow| workflow.row(task_key)) else { return };
        let job = row.compensation.as_ref().and_then(|compensation| compensation.job);
        match (job, row.child) {
            (Some(job), _) if self.has_job_of_workflow(job) => {}
            (Some(_), _) | (None, None) => self.compensated(id, task_key, false, step),
            (None, Some(child)) => {
                let in_progress = self
                    .workflows
                    .map
                    .get(&child)
                    .is_some_and(|workflow| workflow.record.state == WorkflowState::RollingBack);
                if !in_progress {
                    self.compensate_child(id, task_key, child, step);
                }
            }
        }
    }
}

impl LiveWorkflow {
    /// The task or item whose compensation is running.
    fn compensating_task(&self) -> Option<TaskKey> {
        let running = |row: &TaskRecord| {
            row.compensation.as_ref().is_some_and(|compensation| compensation.state == CompensationState::Running)
        };
        for (task, live_task) in self.tasks.iter().enumerate() {
            let task = task as u32;
            if live_task.record.as_deref().is_some_and(running) {
                return Some(TaskKey::of(task));
            }
            let item = live_task
                .for_each
                .as_ref()
                .and_then(|each| each.items.iter().position(|item| item.record.as_deref().is_some_and(running)));
            if let Some(item) = item {
                return Some(TaskKey::item(task, item as u32));
            }
        }
        None
    }
}
