//! Record of an attempt, within the record of its job.

use std::num::NonZeroU16;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{End, LogRef, Usage};
use crate::id::{Attempt, Incarnation, RunnerId};
use crate::time::Millis;

/// Record of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AttemptRecord {
    #[n(0)]
    pub attempt: Attempt,
    #[n(1)]
    pub runner: RunnerId,
    /// Newest known incarnation of the runner: a restarted runner adopts its attempts.
    #[n(2)]
    pub incarnation: Incarnation,
    #[n(3)]
    pub dispatched_at: Millis,
    #[n(4)]
    pub started_at: Option<Millis>,
    #[n(5)]
    pub ended_at: Option<Millis>,
    /// Absent while the attempt is in flight, and if its end is unknown.
    #[n(6)]
    pub end: Option<End>,
    #[n(7)]
    pub exit_code: Option<i32>,
    #[n(8)]
    pub signal: Option<i32>,
    #[n(9)]
    pub usage: Option<Box<Usage>>,
    #[n(10)]
    pub message: Option<String>,
    #[n(11)]
    pub log: Option<Box<LogRef>>,
    /// Why this runner was chosen. Absent if there was no other.
    #[n(12)]
    pub placement: Option<Box<Placement>>,
    /// [`AttemptRecord::lease`], rounded up. Compact: few attempts have one.
    #[n(13)]
    pub lease_seconds: Option<NonZeroU16>,
    /// The node was at fault, and the job's infrastructure budget was charged for it.
    #[n(14)]
    pub node_failure: Option<NodeFailure>,
}

/// A charge of the infrastructure budget for a failure of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeFailure {
    #[n(0)]
    Charged,
    /// Other jobs failed on the node as well: it was cordoned, and this job does not pay for it.
    #[n(1)]
    Refunded,
}

/// Placement decision: the score of the chosen runner, and all known runners counted by eligibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
pub struct Placement {
    /// Load of the chosen runner in thousandths: attempts in flight + CPU + GPU.
    #[n(0)]
    pub score_milli: u64,
    /// The job preferred this runner.
    #[n(1)]
    pub preferred: bool,
    /// Runners that satisfied the requirement and had a free slot.
    #[n(2)]
    pub available: u32,
    /// Runners that satisfied the requirement, but were full or overloaded.
    #[n(3)]
    pub busy: u32,
    /// Runners outside the job's pools.
    #[n(4)]
    pub other_pool: u32,
    #[n(5)]
    pub lack_capability: u32,
    #[n(6)]
    pub other_labels: u32,
}

impl AttemptRecord {
    /// Lease of an exclusive attempt: its runner kills it this long after the newest word from the shard.
    pub fn lease(&self) -> Option<Millis> {
        self.lease_seconds.map(|seconds| Millis::from_secs(seconds.get().into()))
    }

    /// With a lease, of at most [`crate::limits::LEASE_MAX`].
    pub fn with_lease(self, lease: Option<Millis>) -> Self {
        let seconds = lease.map(|lease| u16::try_from(lease.0.div_ceil(1_000)).unwrap_or(u16::MAX));
        Self { lease_seconds: seconds.and_then(NonZeroU16::new), ..self }
    }

    /// Whether the job was charged for a failure of this node, since a time.
    pub fn is_charged_on(&self, runner: RunnerId, since: Millis) -> bool {
        self.runner == runner
            && self.node_failure == Some(NodeFailure::Charged)
            && self.ended_at.is_some_and(|at| at >= since)
    }

    /// Record of an attempt at dispatch.
    pub fn new(attempt: Attempt, runner: RunnerId, incarnation: Incarnation, dispatched_at: Millis) -> Self {
        Self {
            attempt,
            runner,
            incarnation,
            dispatched_at,
            started_at: None,
            ended_at: None,
            end: None,
            exit_code: None,
            signal: None,
            usage: None,
            message: None,
            log: None,
            placement: None,
            lease_seconds: None,
            node_failure: None,
        }
    }
}
