//! Executes the pending work of workflows, a bounded amount per step.

use model::id::WorkflowId;
use model::reason::{Reason, ReasonCode};
use model::time::Millis;
use model::workflow::{AfterStop, NoteKind, TaskKey, TaskState, WorkflowState};

use workflow::plan::TaskWork;

use super::live::LiveWorkflow;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

/// Actions of one workflow before the next workflow's turn.
const ACTIONS_PER_TURN: usize = 256;
/// Default concurrency of a `for_each` task: enough for any runner, and one list does not fill the shard.
const ITEMS_AT_ONCE: u32 = 4_096;
/// Delay before workflows whose next job would exceed a limit of live jobs are retried.
const ROOM_RETRY_INTERVAL: Millis = Millis::from_secs(1);

/// The next action of a workflow.
#[derive(Debug)]
enum NextAction {
    /// End a task that will not run.
    Exclude(u32, TaskState, Reason),
    /// End a merged task or item like its leader.
    CopyOutcome(TaskKey),
    Begin(TaskKey),
    /// Stop the next tasks.
    Stop,
    /// Begin the next compensation.
    Compensate,
}

/// Result of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkResult {
    Done,
    /// The job would exceed a limit of live jobs; the action is retried later.
    NoRoom,
}

impl LiveWorkflow {
    /// Takes the next action. While the workflow is paused no task begins.
    fn next_action(&mut self, paused: bool) -> Option<NextAction> {
        if let Some(task_key) = self.merged_ready.pop_front() {
            return Some(NextAction::CopyOutcome(task_key));
        }
        match self.record.state {
            WorkflowState::Running | WorkflowState::Paused => {
                if let Some((task, state, reason)) = self.excluded.pop_front() {
                    return Some(NextAction::Exclude(task, state, reason));
                }
                if paused {
                    return None;
                }
                if let Some(task) = self.ready.pop_front() {
                    return Some(NextAction::Begin(TaskKey::of(task)));
                }
                self.next_item().map(NextAction::Begin)
            }
            WorkflowState::Stopping => self.stop_cursor.is_some().then_some(NextAction::Stop),
            WorkflowState::RollingBack => {
                (self.compensating.is_none() && self.unconfirmed == 0).then_some(NextAction::Compensate)
            }
            WorkflowState::Succeeded | WorkflowState::Failed | WorkflowState::Cancelled => None,
        }
    }

    /// Takes the next item that may begin; `for_each` tasks take turns.
    fn next_item(&mut self) -> Option<TaskKey> {
        while let Some(task) = self.for_each_ready.pop_front() {
            let plan = &self.plan.tasks[task as usize];
            // Waiting jobs use memory of the shard. Delays, approvals and signals use little and have no default limit.
            let most = match &plan.work {
                TaskWork::Job(_) | TaskWork::Workflow { .. } => Some(ITEMS_AT_ONCE),
                TaskWork::Delay(_) | TaskWork::Approval { .. } | TaskWork::WaitFor { .. } | TaskWork::Switch(_) => None,
            };
            let concurrency = plan.for_each.as_ref().and_then(|each| each.concurrency).or(most);
            let Some(each) = self.tasks[task as usize].for_each.as_mut() else { continue };
            if !each.has_next(concurrency) {
                each.queued = false;
                continue;
            }
            let item = each.next;
            each.next += 1;
            self.for_each_ready.push_back(task);
            return Some(TaskKey::item(task, item));
        }
        None
    }

    /// Queues a `for_each` task whose items may begin.
    pub fn queue_items(&mut self, task: u32) {
        if let Some(each) = self.tasks[task as usize].for_each.as_mut()
            && !each.queued
        {
            each.queued = true;
            self.for_each_ready.push_back(task);
        }
    }

    /// Puts a task or item whose job would exceed a limit of live jobs back to the front.
    fn requeue(&mut self, task_key: TaskKey) {
        match task_key.item {
            None => self.ready.push_front(task_key.task),
            Some(_) => {
                if let Some(each) = self.tasks[task_key.task as usize].for_each.as_mut() {
                    each.next -= 1;
                }
            }
        }
    }
}

impl Shard {
    /// Applies pending updates of jobs and sub-workflows, all in this step's commit.
    pub(crate) fn apply_job_updates(&mut self, step: &mut Step) {
        loop {
            if let Some(job) = self.workflows.pending_job_updates.pop_front() {
                self.job_changed(job, step);
            } else if let Some(child) = self.workflows.pending_child_updates.pop_front() {
                self.child_changed(child, step);
            } else {
                return;
            }
        }
    }

    /// Executes as much workflow work as fits into this step.
    pub(crate) fn continue_workflows(&mut self, step: &mut Step) {
        while !self.is_full(step)
            && let Some(id) = self.workflows.to_stop.pop_front()
        {
            self.note_workflow(id, NoteKind::CancelRequested, None, None, Some("the queue was cancelled".to_owned()));
            self.backlog.add_written(super::flush::WORKFLOW_BYTES);
            self.stop(id, AfterStop::Cancelled, Reason::new(ReasonCode::QueueCancelled), step);
        }
        while !self.is_full(step)
            && let Some(id) = self.workflows.busy.pop_front()
        {
            if let Some(workflow) = self.workflows.map.get_mut(&id) {
                workflow.queued = false;
                self.advance_workflow(id, step);
            }
            self.apply_job_updates(step);
        }
        self.move_finished_children(step);
    }

    /// Executes the next actions of a workflow.
    fn advance_workflow(&mut self, id: WorkflowId, step: &mut Step) {
        let paused = self.is_paused(id);
        for _ in 0..ACTIONS_PER_TURN {
            if self.is_full(step) {
                return self.workflows.wake(id);
            }
            let Some(action) = self.workflows.map.get_mut(&id).and_then(|workflow| workflow.next_action(paused)) else {
                return;
            };
            let outcome = match action {
                NextAction::Exclude(task, state, reason) => {
                    self.exclude(id, task, state, reason, step);
                    WorkResult::Done
                }
                NextAction::CopyOutcome(task_key) => {
                    self.copy_leader_outcome(id, task_key, step);
                    WorkResult::Done
                }
                NextAction::Begin(task_key) => {
                    let outcome = self.begin(id, task_key, step);
                    if let (WorkResult::NoRoom, Some(workflow)) = (outcome, self.workflows.map.get_mut(&id)) {
                        workflow.requeue(task_key);
                    }
                    outcome
                }
                NextAction::Stop => {
                    self.stop_next(id, step);
                    WorkResult::Done
                }
                NextAction::Compensate => self.compensate_next(id, step),
            };
            // Ends come first: they may change the next action.
            self.apply_job_updates(step);
            if outcome == WorkResult::NoRoom {
                return self.wait_for_room(id);
            }
        }
        self.workflows.wake(id);
    }

    /// Whether the workflow or one of its ancestors is paused.
    fn is_paused(&self, id: WorkflowId) -> bool {
        let mut next = Some(id);
        while let Some(workflow) = next.and_then(|id| self.workflows.map.get(&id)) {
            if workflow.record.state == WorkflowState::Paused {
                return true;
            }
            next = workflow.record.parent.map(|(parent, _)| parent);
        }
        false
    }

    /// Queues a workflow whose next job would exceed a limit of live jobs for a retry.
    fn wait_for_room(&mut self, id: WorkflowId) {
        self.workflows.waiting_for_room.push(id);
        let again = self.now + ROOM_RETRY_INTERVAL;
        self.workflows.room_retry_at.get_or_insert(again);
    }

    /// Wakes the workflows that wait for a limit of live jobs when their retry is due.
    pub(crate) fn retry_waiting_for_room(&mut self) {
        if self.workflows.room_retry_at.is_some_and(|at| at <= self.now) {
            self.wake_waiting_for_room();
        }
    }

    /// Wakes the workflows that wait for a limit of live jobs.
    pub(crate) fn wake_waiting_for_room(&mut self) {
        self.workflows.room_retry_at = None;
        for id in std::mem::take(&mut self.workflows.waiting_for_room) {
            self.workflows.wake(id);
        }
    }

    /// Ends a task that will not run.
    fn exclude(&mut self, id: WorkflowId, task: u32, state: TaskState, reason: Reason, step: &mut Step) {
        let waits = self
            .workflows
            .map
            .get(&id)
            .is_some_and(|workflow| workflow.tasks[task as usize].state == TaskState::Waiting);
        if waits {
            self.settle(id, TaskKey::of(task), super::settle::TaskEnd::with_reason(state, reason), step);
        }
    }

    /// Evaluates a waiting task: queues it to begin or to be excluded, or leaves it waiting.
    pub(super) fn evaluate_task(&mut self, id: WorkflowId, task: u32) {
        use super::live::Readiness;
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "evaluate task");
        };
        if workflow.tasks[task as usize].excluded {
            return;
        }
        let name = |need: u32| workflow.plan.tasks[need as usize].name.to_string();
        let excluded = match workflow.readiness(task) {
            Readiness::Waiting => return,
            Readiness::Ready => {
                workflow.ready.push_back(task);
                return self.workflows.wake(id);
            }
            Readiness::UpstreamFailed(need) => (
                TaskState::Cancelled,
                Reason::with(ReasonCode::UpstreamFailed, format!("`{}` did not succeed", name(need))),
            ),
            Readiness::EpochFailed(epoch) => {
                let name = workflow.plan.epochs.get(epoch as usize).map_or("", |name| &**name);
                let message = format!("the epoch `{name}` did not succeed");
                (TaskState::Cancelled, Reason::with(ReasonCode::UpstreamFailed, message))
            }
            Readiness::NotChosen(need) => (
                TaskState::Skipped,
                Reason::with(ReasonCode::NotChosen, format!("`{}` chose another case", name(need))),
            ),
            Readiness::AllSkipped => (TaskState::Skipped, Reason::new(ReasonCode::UpstreamSkipped)),
        };
        workflow.tasks[task as usize].excluded = true;
        workflow.excluded.push_back((task, excluded.0, excluded.1));
        self.workflows.wake(id);
    }
}
