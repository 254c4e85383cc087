//! Workflows.
//!
//! Records refer to tasks by number. The caller that builds a view has the definition and adds the names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::TaskView;
use model::id::{JobId, QueueId, ScheduleId, WorkflowId};
use model::json::Json;
use model::queue::QueueRef;
use model::reason::Reason;
use model::time::{Millis, Timestamp};
use model::workflow::{FromSchedule, Origin, Rollback, Tally, TaskKey, TaskState, Totals, Workflow, WorkflowState};

/// Reason of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Reason)]
pub struct ReasonView {
    /// Stable, snake_case.
    pub code: String,
    pub message: Option<String>,
}

impl From<&Reason> for ReasonView {
    fn from(reason: &Reason) -> Self {
        Self { code: reason.code.as_str().to_owned(), message: reason.message.clone() }
    }
}

/// A problem in a definition or its inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Diagnostic)]
pub struct DiagnosticView {
    /// Stable, snake_case.
    pub code: String,
    /// Path of the field: `tasks.build.needs[1]`.
    pub field: String,
    pub message: String,
    /// Line in the text, from 1, if known.
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// Suggested correction.
    pub suggestion: Option<String>,
}

/// The task that started a sub-workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowParent)]
pub struct ParentView {
    pub workflow: WorkflowId,
    /// Null if only the number of the task is known.
    pub task: Option<String>,
    pub item: Option<u32>,
}

/// The task of a workflow that a job executes or compensates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Origin)]
pub struct OriginView {
    pub workflow: WorkflowId,
    /// Null if the definition of the workflow is missing or unreadable.
    pub task: Option<String>,
    pub item: Option<u32>,
    /// The job compensates the task.
    pub compensation: bool,
}

impl OriginView {
    /// View without the name of the task.
    pub fn new(origin: &Origin) -> Self {
        Self { workflow: origin.workflow, task: None, item: origin.task_key.item, compensation: origin.compensation }
    }
}

/// Number of a task in the definition, from 0, and of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TaskKey)]
pub struct TaskKeyView {
    pub task: u32,
    pub item: Option<u32>,
}

impl From<TaskKey> for TaskKeyView {
    fn from(TaskKey { task, item }: TaskKey) -> Self {
        Self { task, item }
    }
}

/// The schedule and slot that started a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowSchedule)]
pub struct FromScheduleView {
    pub id: ScheduleId,
    pub slot: Timestamp,
}

impl From<FromSchedule> for FromScheduleView {
    fn from(FromSchedule { id, slot }: FromSchedule) -> Self {
        Self { id, slot: Timestamp(slot) }
    }
}

/// Number of tasks or items by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Tally)]
#[serde(default)]
pub struct TallyView {
    pub waiting: u32,
    pub running: u32,
    pub sleeping: u32,
    pub listening: u32,
    pub merged: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub skipped: u32,
    pub cancelled: u32,
    pub quarantined: u32,
}

impl From<Tally> for TallyView {
    fn from(tally: Tally) -> Self {
        Self {
            waiting: tally.of(TaskState::Waiting),
            running: tally.of(TaskState::Running),
            sleeping: tally.of(TaskState::Sleeping),
            listening: tally.of(TaskState::Listening),
            merged: tally.of(TaskState::Merged),
            succeeded: tally.of(TaskState::Succeeded),
            failed: tally.of(TaskState::Failed),
            skipped: tally.of(TaskState::Skipped),
            cancelled: tally.of(TaskState::Cancelled),
            quarantined: tally.of(TaskState::Quarantined),
        }
    }
}

impl TallyView {
    pub fn of(&self, state: TaskState) -> u32 {
        match state {
            TaskState::Waiting => self.waiting,
            TaskState::Running => self.running,
            TaskState::Sleeping => self.sleeping,
            TaskState::Listening => self.listening,
            TaskState::Merged => self.merged,
            TaskState::Succeeded => self.succeeded,
            TaskState::Failed => self.failed,
            TaskState::Skipped => self.skipped,
            TaskState::Cancelled => self.cancelled,
            TaskState::Quarantined => self.quarantined,
        }
    }

    pub fn total(&self) -> u32 {
        TaskState::ALL.into_iter().map(|state| self.of(state)).sum()
    }
}

/// Resource usage of all jobs of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowUsage)]
pub struct UsageView {
    pub cpu_seconds: f64,
    /// Peak of the largest job.
    pub memory_peak_bytes: u64,
    pub jobs: u64,
    pub attempts: u64,
}

impl From<Totals> for UsageView {
    fn from(totals: Totals) -> Self {
        let Totals { cpu, memory_peak_bytes, jobs, attempts } = totals;
        Self { cpu_seconds: cpu.0 as f64 / 1000.0, memory_peak_bytes, jobs, attempts }
    }
}

/// Progress of a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Rollback)]
pub struct RollbackView {
    /// `rolling_back`, `rolled_back` or `partially_rolled_back`.
    pub state: String,
    pub began_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Number of tasks to compensate.
    pub total: u32,
    pub compensated: u32,
    pub failed: u32,
}

impl From<&Rollback> for RollbackView {
    fn from(rollback: &Rollback) -> Self {
        Self {
            state: rollback.state.as_str().to_owned(),
            began_at: Timestamp(rollback.began_at),
            ended_at: rollback.ended_at.map(Timestamp),
            total: rollback.total,
            compensated: rollback.compensated,
            failed: rollback.failed,
        }
    }
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Workflow)]
pub struct WorkflowView {
    pub id: WorkflowId,
    pub name: String,
    pub state: WorkflowState,
    pub reason: Option<ReasonView>,
    pub tenant: String,
    pub queue: QueueId,
    /// Number of runs: 1, plus one for each rerun.
    pub run: u32,
    pub created_at: Timestamp,
    /// When the state was entered.
    pub since: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// From start to end, or until now.
    pub duration_ms: u64,
    /// `Outlast-Actor` of the request that started it.
    pub submitter: Option<String>,
    pub parent: Option<ParentView>,
    pub schedule: Option<FromScheduleView>,
    pub labels: BTreeMap<String, String>,
    /// Inputs by name. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub inputs: Option<Json>,
    pub result: Option<Json>,
    /// Name of the current epoch. Null in lists and for definitions without epochs.
    pub epoch: Option<String>,
    pub tasks_total: u32,
    /// Tasks by state.
    pub counts: TallyView,
    /// Items of `for_each` tasks by state.
    pub items: TallyView,
    pub usage: UsageView,
    pub rollback: Option<RollbackView>,
    pub deadline: Option<Timestamp>,
    /// Why this version of the server cannot continue the workflow. Its jobs go on; another version continues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub suspended: Option<String>,
    /// The workflow was started before, under the same idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deduplicated: bool,
    /// Tasks in the order of the definition. Only in the view of a single workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tasks: Option<Vec<TaskView>>,
    /// Number of tasks not listed here; the route `…/tasks` lists all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tasks_left_out: u32,
}

pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl WorkflowView {
    /// View without inputs, tasks and the fields that require the definition.
    pub fn new(workflow: &Workflow, now: Millis) -> Self {
        let ended_at = workflow.ended_at();
        Self {
            id: workflow.id,
            name: workflow.name.clone(),
            state: workflow.state,
            reason: workflow.reason.as_ref().map(Into::into),
            tenant: workflow.tenant.clone(),
            queue: workflow.queue,
            run: workflow.run,
            created_at: Timestamp(workflow.created_at),
            since: Timestamp(workflow.since),
            ended_at: ended_at.map(Timestamp),
            duration_ms: ended_at.unwrap_or(now).saturating_sub(workflow.created_at).0,
            submitter: workflow.submitter.as_deref().map(str::to_owned),
            parent: workflow.parent.map(|(workflow, place)| ParentView { workflow, task: None, item: place.item }),
            schedule: workflow.schedule.map(Into::into),
            labels: workflow.labels.clone(),
            inputs: None,
            result: workflow.result.clone(),
            epoch: None,
            tasks_total: workflow.tasks.total(),
            counts: workflow.tasks.into(),
            items: workflow.items.into(),
            usage: workflow.totals.into(),
            rollback: workflow.rollback.as_ref().map(Into::into),
            deadline: workflow.deadline.map(Timestamp),
            suspended: None,
            deduplicated: false,
            tasks: None,
            tasks_left_out: 0,
        }
    }
}

/// An event in the history of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowEvent)]
pub struct WorkflowEventView {
    pub at: Timestamp,
    /// `task_began`, `task_ended`, `compensation`, or an event of the workflow as a whole.
    pub kind: String,
    pub task: Option<String>,
    pub item: Option<u32>,
    /// The new state of the task or of its compensation.
    pub state: Option<String>,
    pub reason: Option<ReasonView>,
    /// `Outlast-Actor` of the request.
    pub by: Option<String>,
    pub text: Option<String>,
    pub job: Option<JobId>,
}

/// A page of the history of a workflow, oldest event first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowHistory)]
pub struct WorkflowHistoryView {
    pub id: WorkflowId,
    pub state: WorkflowState,
    pub items: Vec<WorkflowEventView>,
    /// Number of events of the workflow as a whole that were dropped from the middle of a long history.
    pub notes_dropped: u32,
    /// The workflow has too many tasks and items; not all are included.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// Cursor of the next page; null on the last one.
    pub next_cursor: Option<String>,
}

/// Result of validating a definition without problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Valid)]
pub struct ValidView {
    pub valid: bool,
    pub name: String,
    /// Number of tasks, without those of nested definitions.
    pub tasks: u32,
    pub warnings: Vec<DiagnosticView>,
}

/// Request to start a workflow. Exactly one of `definition` and `yaml` is required.
///
/// `D` is the form of the definition: owned JSON, or a slice of the body on the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[schema(bound = "")]
#[serde(deny_unknown_fields)]
pub struct WorkflowStart<D = Json> {
    /// Definition as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Json>)]
    pub definition: Option<D>,
    /// Definition as YAML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yaml: Option<String>,
    /// Inputs by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub inputs: Option<serde_json::Map<String, serde_json::Value>>,
    /// Queue of the jobs; defaults to the implicit queue of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueRef>,
    /// Defaults to `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The same as the header `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Request to cancel a workflow. The body is optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelWorkflow {
    /// Compensate the tasks that succeeded.
    pub compensate: bool,
}

/// Request to rerun a workflow. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RerunWorkflow {
    /// The task to start from; defaults to all tasks that did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub from: Option<String>,
}

/// Response to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Signalled)]
pub struct SignalledView {
    pub accepted: bool,
}

/// Progress report of a running task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgressReport {
    /// From 0 to 100.
    pub percent: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub message: Option<String>,
}
