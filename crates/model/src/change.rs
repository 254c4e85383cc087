//! Events for subscribers: one small record per change, written in the commit that makes the change.

use minicbor::{Decode, Encode};

use crate::id::{Attempt, JobId, NodeId, QueueId, ScheduleId, WorkflowId};
use crate::queue::QueueState;
use crate::reason::ReasonCode;
use crate::session::SessionState;
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
    /// A node has changed, as the control node saw it.
    #[n(9)]
    Node {
        #[n(0)]
        id: NodeId,
        #[n(1)]
        event: NodeEvent,
        #[n(2)]
        at: Millis,
    },
}

/// What happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum NodeEvent {
    /// It has become a member of the cluster.
    #[n(0)]
    Joined,
    #[n(1)]
    Connected,
    /// Its connection ended. Its work goes on.
    #[n(2)]
    Disconnected,
    /// It stops, together with its processes.
    #[n(3)]
    Leaving,
    /// It is given up: its work is placed elsewhere.
    #[n(4)]
    Lost,
    /// It was lost and is back.
    #[n(5)]
    Returned,
    #[n(6)]
    Cordoned,
    #[n(7)]
    Uncordoned,
    /// Its session has entered a state.
    #[n(8)]
    Session(#[n(0)] SessionState),
    /// It was removed from the cluster.
    #[n(9)]
    Removed,
}

impl NodeEvent {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Leaving => "leaving",
            Self::Lost => "lost",
            Self::Returned => "returned",
            Self::Cordoned => "cordoned",
            Self::Uncordoned => "uncordoned",
            Self::Session(_) => "session",
            Self::Removed => "removed",
        }
    }
}

impl Change {
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::Node { id, .. } => Some(*id),
            Self::Job { .. }
            | Self::JobRemoved { .. }
            | Self::Queue { .. }
            | Self::QueueRemoved { .. }
            | Self::Workflow { .. }
            | Self::WorkflowRemoved { .. }
            | Self::Task { .. }
            | Self::Schedule { .. }
            | Self::ScheduleRemoved { .. } => None,
        }
    }

    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Job { id, .. } | Self::JobRemoved { id, .. } => Some(*id),
            Self::Queue { .. }
            | Self::QueueRemoved { .. }
            | Self::Workflow { .. }
            | Self::WorkflowRemoved { .. }
            | Self::Task { .. }
            | Self::Schedule { .. }
            | Self::ScheduleRemoved { .. }
            | Self::Node { .. } => None,
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
            | Self::ScheduleRemoved { .. }
            | Self::Node { .. } => None,
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
            Self::Schedule { .. } | Self::ScheduleRemoved { .. } | Self::Node { .. } => None,
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
            | Self::ScheduleRemoved { at, .. }
            | Self::Node { at, .. } => *at,
        }
    }
}
