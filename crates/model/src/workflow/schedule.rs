//! What starts workflows by the clock.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::id::{QueueId, ScheduleId, WorkflowId};
use crate::json::Json;
use crate::spec::Digest;
use crate::time::Millis;

/// What becomes of slots that passed while nobody could start anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are left out.
    #[n(0)]
    Skip,
    /// One run makes up for all of them.
    #[default]
    #[n(1)]
    Once,
    /// Each gets its run, one after the other.
    #[n(2)]
    All,
}

/// What happens when the workflow of the slot before has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Both run.
    #[n(0)]
    Allow,
    /// The slot is left out.
    #[default]
    #[n(1)]
    Forbid,
    /// The one before is cancelled; the new one starts when it has ended.
    #[n(2)]
    Replace,
}

/// What a schedule was made with.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ScheduleSpec {
    #[n(0)]
    pub cron: String,
    #[n(1)]
    pub zone: String,
    #[n(2)]
    pub catch_up: CatchUp,
    #[n(3)]
    pub overlap: Overlap,
    /// Each start is put off by up to this much, a different amount for each slot.
    #[n(4)]
    pub jitter: Millis,
    #[n(5)]
    pub digest: Digest,
    #[cbor(n(6), with = "minicbor::bytes")]
    pub definition: Vec<u8>,
    #[n(7)]
    pub inputs: Json,
}

impl ScheduleSpec {
    pub fn definition(&self) -> Bytes {
        Bytes::copy_from_slice(&self.definition)
    }
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Schedule {
    #[n(0)]
    pub id: ScheduleId,
    /// Its own among those of its tenant.
    #[n(1)]
    pub name: String,
    #[n(2)]
    pub tenant: String,
    #[n(3)]
    pub queue: Option<QueueId>,
    #[n(4)]
    pub spec: ScheduleSpec,
    #[n(5)]
    pub created_at: Millis,
    #[n(6)]
    pub submitter: Option<Box<str>>,
    #[n(7)]
    pub paused: bool,
    /// Slots up to this one have had their turn.
    #[n(8)]
    pub last_slot: Millis,
    /// The workflow that was started last.
    #[n(9)]
    pub last_workflow: Option<WorkflowId>,
    #[n(10)]
    pub started: u64,
    /// Slots that were left out.
    #[n(11)]
    pub skipped: u64,
    /// With [`Overlap::Replace`]: the slot that starts as soon as the one before has ended.
    #[n(12)]
    pub waiting_slot: Option<Millis>,
    /// Why the last slot could not be started, if so.
    #[n(13)]
    pub trouble: Option<String>,
}
