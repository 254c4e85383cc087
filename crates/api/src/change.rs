//! Change events.

use model::change::Change;
use model::id::{Attempt, JobId, NodeId, QueueId, ScheduleId, WorkflowId};
use model::session::SessionState;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::TaskKeyView;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Job,
    JobRemoved,
    Queue,
    QueueRemoved,
    Workflow,
    WorkflowRemoved,
    Task,
    Schedule,
    ScheduleRemoved,
    Node,
}

impl ChangeKind {
    pub const ALL: [Self; 10] = [
        Self::Job,
        Self::JobRemoved,
        Self::Queue,
        Self::QueueRemoved,
        Self::Workflow,
        Self::WorkflowRemoved,
        Self::Task,
        Self::Schedule,
        Self::ScheduleRemoved,
        Self::Node,
    ];

    pub fn of(change: &Change) -> Self {
        match change {
            Change::Job { .. } => Self::Job,
            Change::JobRemoved { .. } => Self::JobRemoved,
            Change::Queue { .. } => Self::Queue,
            Change::QueueRemoved { .. } => Self::QueueRemoved,
            Change::Workflow { .. } => Self::Workflow,
            Change::WorkflowRemoved { .. } => Self::WorkflowRemoved,
            Change::Task { .. } => Self::Task,
            Change::Schedule { .. } => Self::Schedule,
            Change::ScheduleRemoved { .. } => Self::ScheduleRemoved,
            Change::Node { .. } => Self::Node,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::JobRemoved => "job_removed",
            Self::Queue => "queue",
            Self::QueueRemoved => "queue_removed",
            Self::Workflow => "workflow",
            Self::WorkflowRemoved => "workflow_removed",
            Self::Task => "task",
            Self::Schedule => "schedule",
            Self::ScheduleRemoved => "schedule_removed",
            Self::Node => "node",
        }
    }
}

/// A change of a job, queue, workflow, task, schedule or node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Change)]
pub struct ChangeView {
    /// Cursor to continue after this change.
    pub cursor: String,
    /// See `ChangeKind`. Clients ignore kinds they do not know.
    #[schema(value_type = ChangeKind)]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub job: Option<JobId>,
    /// Absent for schedules and nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub queue: Option<QueueId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub workflow: Option<WorkflowId>,
    /// The task that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub place: Option<TaskKeyView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub schedule: Option<ScheduleId>,
    /// The node that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub node: Option<NodeId>,
    /// The new state of the node's session, if that has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<SessionState>,
    /// The new state; of a schedule `active` or `paused`; of a node what happened to it: `joined`, `connected`,
    /// `disconnected`, `leaving`, `lost`, `returned`, `cordoned`, `uncordoned`, `session` or `removed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub attempt: Option<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    pub at: Timestamp,
}
