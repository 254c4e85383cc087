//! What subscribers are told: one small record for each change, written with the commit that made it.

use minicbor::{Decode, Encode};

use crate::id::{Attempt, JobId, QueueId};
use crate::queue::QueueState;
use crate::reason::ReasonCode;
use crate::state::State;
use crate::time::Millis;

/// One change.
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
}

impl Change {
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Job { id, .. } | Self::JobRemoved { id, .. } => Some(*id),
            Self::Queue { .. } | Self::QueueRemoved { .. } => None,
        }
    }

    pub fn queue(&self) -> QueueId {
        match self {
            Self::Job { queue, .. } | Self::JobRemoved { queue, .. } => *queue,
            Self::Queue { id, .. } | Self::QueueRemoved { id, .. } => *id,
        }
    }

    pub fn at(&self) -> Millis {
        match self {
            Self::Job { at, .. }
            | Self::JobRemoved { at, .. }
            | Self::Queue { at, .. }
            | Self::QueueRemoved { at, .. } => *at,
        }
    }
}
