//! Workflows and their tasks as the API shows them.
//!
//! Records name tasks by number; whoever makes a view has the definition at hand and gives their names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::TaskView;
use crate::id::{JobId, QueueId, ScheduleId, WorkflowId};
use crate::json::Json;
use crate::reason::Reason;
use crate::time::{Millis, Timestamp};
use crate::workflow::{FromSchedule, Origin, Place, Rollback, Tally, TaskState, Totals, Workflow, WorkflowState};

/// Why something is as it is: a stable code, and the same for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonView {
    pub code: String,
    pub message: Option<String>,
}

impl From<&Reason> for ReasonView {
    fn from(reason: &Reason) -> Self {
        Self { code: reason.code.as_str().to_owned(), message: reason.message.clone() }
    }
}

/// One problem of a definition or of the inputs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnosticView {
    /// Stable, snake_case.
    pub code: String,
    /// Where it is, as a path: `tasks.build.needs[1]`.
    pub field: String,
    pub message: String,
    /// From 1, where the text tells.
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// What to write instead.
    pub suggestion: Option<String>,
}

/// The task that has started a workflow as a part of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentView {
    pub workflow: WorkflowId,
    /// Absent where only the number of the task is known.
    pub task: Option<String>,
    pub item: Option<u32>,
}

/// The task of a workflow that a job does or undoes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginView {
    pub workflow: WorkflowId,
    /// Absent where the definition of the workflow is gone or cannot be read.
    pub task: Option<String>,
    pub item: Option<u32>,
    /// It undoes what the task has done.
    pub compensation: bool,
}

impl OriginView {
    /// Without the task's name.
    pub fn new(origin: &Origin) -> Self {
        Self { workflow: origin.workflow, task: None, item: origin.place.item, compensation: origin.compensation }
    }
}

/// A task by its number, where its name is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceView {
    pub task: u32,
    pub item: Option<u32>,
}

impl From<Place> for PlaceView {
    fn from(Place { task, item }: Place) -> Self {
        Self { task, item }
    }
}

/// The schedule that has started a workflow, and for which moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromScheduleView {
    pub id: ScheduleId,
    pub slot: Timestamp,
}

impl From<FromSchedule> for FromScheduleView {
    fn from(FromSchedule { id, slot }: FromSchedule) -> Self {
        Self { id, slot: Timestamp(slot) }
    }
}

/// How many tasks, or items of tasks, are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

/// What the jobs of a workflow have used, each counted once.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct UsageView {
    pub cpu_seconds: f64,
    /// The largest of any job.
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

/// How far the undoing of a workflow has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackView {
    /// `rolling_back`, `rolled_back` or `partially_rolled_back`.
    pub state: String,
    pub began_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// How many steps there are to undo.
    pub total: u32,
    pub undone: u32,
    pub failed: u32,
}

impl From<&Rollback> for RollbackView {
    fn from(rollback: &Rollback) -> Self {
        Self {
            state: rollback.state.as_str().to_owned(),
            began_at: Timestamp(rollback.began_at),
            ended_at: rollback.ended_at.map(Timestamp),
            total: rollback.total,
            undone: rollback.undone,
            failed: rollback.failed,
        }
    }
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkflowView {
    pub id: WorkflowId,
    pub name: String,
    pub state: WorkflowState,
    pub reason: Option<ReasonView>,
    pub tenant: String,
    pub queue: QueueId,
    /// Counts its runs: 1, and one more for each time it was run again from one of its tasks.
    pub run: u32,
    pub created_at: Timestamp,
    /// When it entered its state.
    pub since: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// From its start to its end, or until now.
    pub duration_ms: u64,
    /// Who started it, as far as the server was told.
    pub submitter: Option<String>,
    pub parent: Option<ParentView>,
    pub schedule: Option<FromScheduleView>,
    pub labels: BTreeMap<String, String>,
    /// Every input with its value. Lists leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Json>,
    pub result: Option<Json>,
    /// The name of the epoch that it has come to. Lists, and definitions without epochs, have none.
    pub epoch: Option<String>,
    pub tasks_total: u32,
    /// Its tasks by state.
    pub counts: TallyView,
    /// The items of its tasks that run for each of a list, by state.
    pub items: TallyView,
    pub usage: UsageView,
    pub rollback: Option<RollbackView>,
    pub deadline: Option<Timestamp>,
    /// It was started before, under the same idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deduplicated: bool,
    /// In the order of the definition, where one workflow is shown whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<TaskView>>,
    /// How many tasks are not shown here; the route `…/tasks` has them all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tasks_left_out: u32,
}

pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl WorkflowView {
    /// Without inputs, tasks, and whatever takes the definition to know.
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
            deduplicated: false,
            tasks: None,
            tasks_left_out: 0,
        }
    }
}

/// Something that has happened in a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowEventView {
    pub at: Timestamp,
    /// What happened to the workflow as a whole, or `task_began`, `task_ended`, `compensation`.
    pub kind: String,
    pub task: Option<String>,
    pub item: Option<u32>,
    /// The state that the task, or its undoing, has entered.
    pub state: Option<String>,
    pub reason: Option<ReasonView>,
    /// Who did it, as far as the server was told.
    pub by: Option<String>,
    pub text: Option<String>,
    pub job: Option<JobId>,
}

/// What has happened in a workflow, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowHistoryView {
    pub id: WorkflowId,
    pub state: WorkflowState,
    pub items: Vec<WorkflowEventView>,
    /// How many notes on the workflow as a whole were left out of the middle of a long life.
    pub notes_dropped: u32,
    /// Of so many tasks and items not all are in here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// Where the next page begins; absent on the last one.
    pub next_cursor: Option<String>,
}

/// A definition without problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidView {
    pub valid: bool,
    pub name: String,
    /// Its own, without those of definitions in it.
    pub tasks: u32,
    pub warnings: Vec<DiagnosticView>,
}

/// What to start: the body of the request. Exactly one of `definition` and `yaml` is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkflowStart {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yaml: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<crate::queue::QueueRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// The body of a request to cancel a workflow. All of it may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CancelWorkflow {
    /// Whether what was done is undone.
    pub compensate: bool,
}

/// The body of a request to run a workflow again. All of it may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RerunWorkflow {
    /// The task to begin with; absent: whatever has not succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The answer to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalledView {
    pub accepted: bool,
}

/// The body with which a running task says how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressReport {
    /// From 0 to 100.
    pub percent: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
