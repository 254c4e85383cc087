//! Tasks of workflows.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ReasonView;
use crate::workflow::is_zero;
use model::id::{JobId, WorkflowId};
use model::json::Json;
use model::state::State;
use model::time::{Millis, Timestamp};
use model::workflow::{Compensation, Progress, TaskRecord, TaskState};

/// Name of a task or of one of its items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TaskRef)]
pub struct TaskRefView {
    pub task: String,
    /// Index of the item in the list of `for_each`, from 0.
    pub item: Option<u32>,
}

/// Kind of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    Job,
    Workflow,
    Delay,
    Approval,
    WaitFor,
    Switch,
}

impl TaskKind {
    pub const ALL: [Self; 6] = [Self::Job, Self::Workflow, Self::Delay, Self::Approval, Self::WaitFor, Self::Switch];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Workflow => "workflow",
            Self::Delay => "delay",
            Self::Approval => "approval",
            Self::WaitFor => "wait_for",
            Self::Switch => "switch",
        }
    }
}

/// Compensation of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Compensation)]
pub struct CompensationView {
    /// `running`, `done` or `failed`.
    pub state: String,
    /// Null if a sub-workflow compensates its own tasks, or if the job could not be rendered.
    pub job: Option<JobId>,
    /// When the state was entered.
    pub at: Timestamp,
    /// Dead letter of a job that could not be rendered.
    pub dead_letter: Option<JobId>,
}

impl From<&Compensation> for CompensationView {
    fn from(compensation: &Compensation) -> Self {
        let Compensation { state, job, at, dead_letter } = *compensation;
        Self { state: state.as_str().to_owned(), job, at: Timestamp(at), dead_letter }
    }
}

/// Reported progress of a running task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressView {
    pub percent: u8,
    pub message: Option<String>,
    pub at: Timestamp,
}

impl From<&Progress> for ProgressView {
    fn from(progress: &Progress) -> Self {
        Self { percent: progress.percent, message: progress.message.clone(), at: Timestamp(progress.at) }
    }
}

/// A task, or one item of a `for_each` task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Task)]
pub struct TaskView {
    pub name: String,
    pub kind: TaskKind,
    pub state: TaskState,
    /// Index of the item in the list of `for_each`, from 0; null for the task itself.
    pub item: Option<u32>,
    pub epoch: Option<String>,
    /// Tasks that must end first.
    pub needs: Vec<String>,
    pub job: Option<JobId>,
    /// Current state of the job. A task that waits for an approval has a job that does.
    pub job_state: Option<State>,
    /// The sub-workflow.
    pub child: Option<WorkflowId>,
    pub began_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// From start to end, or until now.
    pub duration_ms: Option<u64>,
    /// End of a delay, or timeout of a wait for a signal.
    pub due: Option<Timestamp>,
    pub reason: Option<ReasonView>,
    /// An identical task whose result this task shares.
    pub merged_into: Option<TaskRefView>,
    pub compensation: Option<CompensationView>,
    /// Of a switch: the tasks of the chosen case; empty if no case matched.
    pub chosen: Option<Vec<String>>,
    pub progress: Option<ProgressView>,
    /// With `for_each`: number of items.
    pub items_total: Option<u32>,
    /// Items that have started. Only in the view of a whole workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, no_recursion)]
    pub items: Option<Vec<TaskView>>,
    /// Number of items not listed here; the route `…/tasks` lists all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_left_out: u32,
    /// Number of attempts of the job. Only in the view of a single task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub attempts: Option<u32>,
    /// Result of the task. Only in the view of a single task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub result: Option<Json>,
}

impl TaskView {
    /// A task that has not started.
    pub fn new(name: &str, kind: TaskKind, state: TaskState) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            state,
            item: None,
            epoch: None,
            needs: Vec::new(),
            job: None,
            job_state: None,
            child: None,
            began_at: None,
            ended_at: None,
            duration_ms: None,
            due: None,
            reason: None,
            merged_into: None,
            compensation: None,
            chosen: None,
            progress: None,
            items_total: None,
            items: None,
            items_left_out: 0,
            attempts: None,
            result: None,
        }
    }

    /// Adds the record of a started task, except for fields that require the definition.
    pub fn with_record(mut self, record: &TaskRecord, now: Millis) -> Self {
        self.state = record.state;
        self.job = record.job;
        self.job_state = record.job_state;
        self.child = record.child;
        self.began_at = Some(Timestamp(record.began_at));
        self.ended_at = record.ended_at.map(Timestamp);
        self.duration_ms = Some(record.ended_at.unwrap_or(now).saturating_sub(record.began_at).0);
        self.due = record.due.map(Timestamp);
        self.reason = record.reason.as_ref().map(Into::into);
        self.compensation = record.compensation.as_deref().map(Into::into);
        self.progress = record.progress.as_deref().map(Into::into);
        self.items_total = record.items;
        self
    }
}
