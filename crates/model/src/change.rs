//! Events for subscribers: one small record per change, written in the commit that makes the change.

use minicbor::{Decode, Encode};

use crate::id::{Attempt, JobId, QueueId, ScheduleId, WorkflowId};
use crate::queue::QueueState;
use crate::reason::ReasonCode;
use crate::state::State;
use crate::time::Millis;
use crate::workflow::{TaskKey, TaskState, WorkflowState};

/// A change event.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Change {
    /// A job entered a state.
    #[n(0)]
    Job {
        #[n(0)]
        id: JobId,
        #[n(1)]
        queue: QueueId,
        #[n(2)]
        state: State,
        #[n(3)]
        attempt: Attempt,
        #[n(4)]
        at: Millis,
        #[n(5)]
        reason: Option<ReasonCode>,
    },
    /// A terminal job was removed.
    #[n(1)]
    JobRemoved {
        #[n(0)]
        id: JobId,
        #[n(1)]
        queue: QueueId,
        #[n(2)]
        at: Millis,
    },
    /// A queue was created or changed its state.
    #[n(2)]
    Queue {
        #[n(0)]
        id: QueueId,
        #[n(1)]
        state: QueueState,
        #[n(2)]
        at: Millis,
    },
    #[n(3)]
    QueueRemoved {
        #[n(0)]
        id: QueueId,
        #[n(1)]
        at: Millis,
    },
    /// A workflow entered a state.
    #[n(4)]
    Workflow {
        #[n(0)]
        id: WorkflowId,
        #[n(1)]
        queue: QueueId,
        #[n(2)]
        state: WorkflowState,
        #[n(3)]
        at: Millis,
        #[n(4)]
        reason: Option<ReasonCode>,
    },
    #[n(5)]
    WorkflowRemoved {
        #[n(0)]
        id: WorkflowId,
        #[n(1)]
        queue: QueueId,
        #[n(2)]
        at: Millis,
    },
    /// A task of a workflow entered a state.
    #[n(6)]
    Task {
        #[n(0)]
        workflow: WorkflowId,
        #[n(1)]
        queue: QueueId,
        #[n(2)]
        task_key: TaskKey,
        #[n(3)]
        state: TaskState,
        #[n(4)]
        at: Millis,
        #[n(5)]
        reason: Option<ReasonCode>,
    },
    /// A schedule was created or changed.
    #[n(7)]
    Schedule {
        #[n(0)]
        id: ScheduleId,
        #[n(1)]
        paused: bool,
        #[n(2)]
        at: Millis,
    },
    #[n(8)]
    ScheduleRemoved {
        #[n(0)]
        id: ScheduleId,
        #[n(1)]
        at: Millis,
    },
}

impl Change {
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Job { id, .. } | Self::JobRemoved { id, .. } => Some(*id),
            Self::Queue { .. }
            | Self::QueueRemoved { .. }
            | Self::Workflow { .. }
            | Self::WorkflowRemoved { .. }
            | Self::Task { .. }
            | Self::Schedule { .. }
            | Self::ScheduleRemoved { .. } => None,
        }
    }

    pub fn workflow(&self) -> Option<WorkflowId> {
        match self {
            Self::Workflow { id, .. } | Self::WorkflowRemoved { id, .. } => Some(*id),
            Self::Task { workflow, .. } => Some(*workflow),
            Self::Job { .. }
            | Self::JobRemoved { .. }
            | Self::Queue { .. }
            | Self::QueueRemoved { .. }
            | Self::Schedule { .. }
            | Self::ScheduleRemoved { .. } => None,
        }
    }

    pub fn queue(&self) -> Option<QueueId> {
        match self {
            Self::Job { queue, .. }
            | Self::JobRemoved { queue, .. }
            | Self::Workflow { queue, .. }
            | Self::WorkflowRemoved { queue, .. }
            | Self::Task { queue, .. } => Some(*queue),
            Self::Queue { id, .. } | Self::QueueRemoved { id, .. } => Some(*id),
            Self::Schedule { .. } | Self::ScheduleRemoved { .. } => None,
        }
    }

    pub fn at(&self) -> Millis {
        match self {
            Self::Job { at, .. }
            | Self::JobRemoved { at, .. }
            | Self::Queue { at, .. }
            | Self::QueueRemoved { at, .. }
            | Self::Workflow { at, .. }
            | Self::WorkflowRemoved { at, .. }
            | Self::Task { at, .. }
            | Self::Schedule { at, .. }
            | Self::ScheduleRemoved { at, .. } => *at,
        }
    }
}
