//! Jobs of workflows: their submission and their ends.

use model::id::{JobId, QueueId, WorkflowId};
use model::job::Job;
use model::json::Json;
use model::machine::Event;
use model::queue::QueueState;
use model::reason::{Reason, ReasonCode};
use model::spec::PackedSpec;
use model::state::State;
use model::time::Timestamp;
use model::verdict::{Decision, Verdict};
use model::workflow::{AfterStop, Origin, TaskKey, TaskState};
use serde_json::json;

use super::settle::TaskEnd;
use super::work::WorkResult;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

/// Policy rule name in the decisions of approval tasks.
pub(super) const APPROVAL_RULE: &str = "workflow_approval";

impl Shard {
    /// Begins the job of a task or item. With a message it requires an approval first.
    pub(super) fn begin_job(
        &mut self,
        id: WorkflowId,
        task_key: TaskKey,
        spec: PackedSpec,
        approval: Option<String>,
        step: &mut Step,
    ) -> WorkResult {
        let Some(job) = self.enter_workflow_job(id, task_key, spec, false, step) else { return WorkResult::NoRoom };
        let now = self.now;
        if let Some(workflow) = self.workflows.touch(id)
            && let Some(row) = workflow.enter(task_key, TaskState::Running, now)
        {
            row.job = Some(job);
        }
        self.backlog.add_written(super::flush::ROW_BYTES);
        self.announce_task(id, task_key, step);
        match approval {
            None => self.check_policy(job, step),
            Some(message) => {
                let decision = Decision {
                    at: now,
                    verdict: Verdict::RequireApproval,
                    rule: APPROVAL_RULE.to_owned(),
                    message: Some(message),
                    policy: None,
                    constraints: None,
                };
                let noted = decision.clone();
                if self.fire(job, Event::Verdict(decision), step).is_ok() {
                    self.audit_decision(job, &noted, step);
                }
            }
        }
        WorkResult::Done
    }

    /// Creates the job of a task or compensation, before the policy check. None: a limit does not allow it now, or its
    /// queue was cancelled.
    pub(super) fn enter_workflow_job(
        &mut self,
        id: WorkflowId,
        task_key: TaskKey,
        spec: PackedSpec,
        compensation: bool,
        step: &mut Step,
    ) -> Option<JobId> {
        let origin = Origin { workflow: id, task_key, compensation };
        self.enter_workflow_job_as(None, origin, spec, step)
    }

    /// Creates the job of a task or compensation under a reserved id, or under a new one.
    pub(super) fn enter_workflow_job_as(
        &mut self,
        reserved: Option<JobId>,
        origin: Origin,
        spec: PackedSpec,
        step: &mut Step,
    ) -> Option<JobId> {
        let Origin { workflow: id, compensation, .. } = origin;
        let workflow = self.workflows.map.get(&id)?;
        let submitter = workflow.record.submitter.clone();
        if self.jobs.len() >= self.config.live_jobs_max {
            return None;
        }
        let own = workflow.record.queue;
        // Compensations run even if the workflow's queue is cancelled.
        let queue = if compensation { self.implicit_queue(&spec.tenant, step).ok()? } else { own };
        if self.is_cancelled_queue(queue) {
            self.stop(id, AfterStop::Cancelled, Reason::new(ReasonCode::QueueCancelled), step);
            return None;
        }
        self.ensure_queue(queue, id);
        if !self.admit_task(queue) {
            return None;
        }
        let job = reserved.unwrap_or_else(|| JobId(self.ids.next(self.now, queue.slot())));
        if self.enter_queue(job, queue, spec, submitter, Some(Box::new(origin)), step).is_err() {
            self.release_tenant_slot(queue);
            return None;
        }
        self.stats.submitted += 1;
        Some(job)
    }

    /// Restores the workflow's queue if it has expired.
    fn ensure_queue(&mut self, queue: QueueId, id: WorkflowId) {
        if self.queues.get(queue).is_none()
            && let Some(workflow) = self.workflows.map.get(&id)
        {
            let tenant = workflow.record.tenant.clone();
            self.restore_queue_of(queue, tenant);
        }
    }

    /// Applies a job's change of terminal state to its workflow.
    pub(super) fn job_changed(&mut self, id: JobId, step: &mut Step) {
        let Some(job) = self.jobs.get(id).map(|entry| &entry.job) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "job changed");
        };
        let Some(origin) = job.origin.as_deref().copied() else { return };
        if !job.state.is_terminal() {
            return;
        }
        let update = JobUpdate::of(job, id);
        if self.workflows.map.contains_key(&origin.workflow) {
            self.apply_update(origin, &update, step);
        } else {
            self.job_changed_late(origin, update, step);
        }
    }

    /// Applies a job's terminal state to its workflow in memory.
    pub(super) fn apply_update(&mut self, origin: Origin, update: &JobUpdate, step: &mut Step) {
        // The workflow may have been removed since it was fetched.
        let Some(workflow) = self.workflows.map.get(&origin.workflow) else { return };
        let row = workflow.row(origin.task_key);
        let is_current = if origin.compensation {
            workflow.compensating == Some(origin.task_key)
                && row.and_then(|row| row.compensation.as_ref()).is_some_and(|undo| undo.job == Some(update.job))
        } else {
            workflow.state(origin.task_key) == TaskState::Running && row.is_some_and(|row| row.job == Some(update.job))
        };
        match (is_current, origin.compensation) {
            (false, _) => self.apply_late_update(origin, update, step),
            (true, true) => {
                self.add_usage(origin.workflow, update);
                self.list_unconfirmed(origin.workflow, origin.task_key, update.job);
                self.compensated(origin.workflow, origin.task_key, update.state == State::Succeeded, step);
            }
            (true, false) => {
                self.add_usage(origin.workflow, update);
                self.list_unconfirmed(origin.workflow, origin.task_key, update.job);
                self.settle(origin.workflow, origin.task_key, update.end(), step);
                // A cancelled queue cancels the whole workflow.
                if update.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::QueueCancelled) {
                    self.stop(origin.workflow, AfterStop::Cancelled, Reason::new(ReasonCode::QueueCancelled), step);
                }
            }
        }
    }

    /// Adds a job's attempts and usage to the workflow's totals.
    fn add_usage(&mut self, id: WorkflowId, update: &JobUpdate) {
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "add usage");
        };
        let totals = &mut workflow.record.totals;
        totals.jobs += 1;
        totals.attempts += u64::from(update.attempts);
        totals.cpu = totals.cpu + update.usage.cpu;
        totals.memory_peak_bytes = totals.memory_peak_bytes.max(update.usage.memory_peak_bytes);
    }

    /// Queues the workflows of a cancelled queue to be stopped, a few per step.
    pub(crate) fn stop_workflows_of(&mut self, queue: QueueId) {
        let mut ids: Vec<WorkflowId> = self
            .workflows
            .map
            .values()
            .filter(|workflow| workflow.record.queue == queue)
            .map(|workflow| workflow.record.id)
            .collect();
        ids.sort_unstable();
        self.workflows.to_stop.extend(ids);
    }

    /// Whether the queue is cancelled.
    pub(super) fn is_cancelled_queue(&self, queue: QueueId) -> bool {
        self.queues.get(queue).is_some_and(|entry| entry.queue().state == QueueState::Cancelled)
    }
}

/// The part of a job's end that its workflow needs.
#[derive(Debug, Clone)]
pub(super) struct JobUpdate {
    pub job: JobId,
    pub state: State,
    pub reason: Option<Reason>,
    pub result: Option<Json>,
    pub attempts: u32,
    pub usage: model::job::Usage,
    /// An attempt had begun and its progress is unknown.
    pub unknown: bool,
}

impl JobUpdate {
    /// The update for a job in a terminal state.
    pub fn of(job: &Job, id: JobId) -> Self {
        let mut usage = model::job::Usage::default();
        for attempt in job.attempts.iter().filter_map(|attempt| attempt.usage.as_deref()) {
            usage.cpu = usage.cpu + attempt.cpu;
            usage.memory_peak_bytes = usage.memory_peak_bytes.max(attempt.memory_peak_bytes);
        }
        Self {
            job: id,
            state: job.state,
            reason: job.reason.clone(),
            result: if job.state == State::Succeeded {
                approval_result(job).or_else(|| job.result.clone())
            } else {
                None
            },
            attempts: job.attempt.0,
            usage,
            unknown: job.state != State::Succeeded && job.last_attempt().is_some_and(|attempt| attempt.end.is_none()),
        }
    }

    /// The end of its task.
    fn end(&self) -> TaskEnd {
        let state = match self.state {
            State::Succeeded => TaskState::Succeeded,
            State::Cancelled => TaskState::Cancelled,
            State::Failed
            | State::TimedOut
            | State::Denied
            | State::Quarantined
            | State::Abandoned
            | State::Pending
            | State::Blocked
            | State::ApprovalRequired
            | State::Scheduled
            | State::Dispatched
            | State::Running
            | State::Cancelling
            | State::Scanning => TaskState::Failed,
        };
        let reason = match state {
            TaskState::Succeeded => None,
            _ => Some(self.reason.clone().unwrap_or_else(|| Reason::new(ReasonCode::JobFailed))),
        };
        TaskEnd {
            result: self.result.clone(),
            reason,
            job_state: Some(self.state),
            unknown: self.unknown,
            ..TaskEnd::of(state)
        }
    }
}

/// Result of an approval task: who approved, when, and the comment.
fn approval_result(job: &Job) -> Option<Json> {
    let approval = job.approval.as_deref().filter(|approval| approval.rule == APPROVAL_RULE)?;
    Some(Json::of(&json!({
        "approved_by": approval.by,
        "comment": approval.comment,
        "at": Timestamp(approval.at),
    })))
}
