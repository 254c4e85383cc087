//! Tasks of workflows as the API shows them.

use serde::{Deserialize, Serialize};

use super::ReasonView;
use super::workflow::is_zero;
use crate::id::{JobId, WorkflowId};
use crate::json::Json;
use crate::state::State;
use crate::time::{Millis, Timestamp};
use crate::workflow::{Compensation, Progress, TaskRecord, TaskState};

/// A task by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRefView {
    pub task: String,
    /// With `for_each`: the place of the item in its list, from 0.
    pub item: Option<u32>,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// The undoing of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompensationView {
    /// `running`, `done` or `failed`.
    pub state: String,
    /// Absent where a sub-workflow undoes its own steps.
    pub job: Option<JobId>,
    /// When it entered its state.
    pub at: Timestamp,
}

impl From<&Compensation> for CompensationView {
    fn from(compensation: &Compensation) -> Self {
        Self { state: compensation.state.as_str().to_owned(), job: compensation.job, at: Timestamp(compensation.at) }
    }
}

/// How far a running task says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A task, or one item of a task that runs for each of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    pub name: String,
    pub kind: TaskKind,
    pub state: TaskState,
    /// With `for_each`: the place of the item in its list, from 0; absent for the task as a whole.
    pub item: Option<u32>,
    pub epoch: Option<String>,
    /// The tasks that come before it.
    pub needs: Vec<String>,
    pub job: Option<JobId>,
    /// As it is now: a task that waits for somebody's word has a job that does.
    pub job_state: Option<State>,
    /// The sub-workflow that it has started.
    pub child: Option<WorkflowId>,
    pub began_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// From its beginning to its end, or until now.
    pub duration_ms: Option<u64>,
    /// When a delay is over, or when a signal has been waited for long enough.
    pub due: Option<Timestamp>,
    pub reason: Option<ReasonView>,
    /// The task that does the very same; its result is this one's.
    pub merged_into: Option<TaskRefView>,
    pub compensation: Option<CompensationView>,
    /// Of a switch: the tasks that it lets run; none where no case held.
    pub chosen: Option<Vec<String>>,
    pub progress: Option<ProgressView>,
    /// With `for_each`: how many items there are.
    pub items_total: Option<u32>,
    /// Those that have begun, where a workflow is shown whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<TaskView>>,
    /// How many items there are beyond those that are shown; the route `…/tasks` has them all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_left_out: u32,
    /// How often its job was tried, where one task is shown by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Where one task is shown by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
}

impl TaskView {
    /// A task that has not begun.
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

    /// Adds what the record of a task that has begun says, but for what takes the definition to know.
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
