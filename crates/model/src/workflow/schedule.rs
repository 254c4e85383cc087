//! Records of schedules.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::id::{QueueId, ScheduleId, WorkflowId};
use crate::json::Json;
use crate::spec::Digest;
use crate::time::Millis;

/// Handling of missed slots: those that passed while no start was possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum CatchUp {
    /// Missed slots are skipped.
    #[n(0)]
    Skip,
    /// One start for all missed slots.
    #[default]
    #[n(1)]
    Once,
    /// One start per missed slot, in order.
    #[n(2)]
    All,
}

/// Handling of a slot while the previous workflow is still running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Overlap {
    /// Both workflows run.
    #[n(0)]
    Allow,
    /// The slot is skipped.
    #[default]
    #[n(1)]
    Forbid,
    /// The previous workflow is cancelled; the new one starts when it has ended.
    #[n(2)]
    Replace,
}

/// Spec of a schedule.
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
    /// Maximum delay of a start. The delay differs from slot to slot.
    #[n(4)]
    pub jitter: Millis,
    #[n(5)]
    pub digest: Digest,
    /// Definition as JSON. Empty: stored by its digest. Not empty in records of version 0.1.
    #[cbor(n(6), with = "minicbor::bytes")]
    pub definition: Vec<u8>,
    #[n(7)]
    pub inputs: Json,
}

/// Record of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Schedule {
    #[n(0)]
    pub id: ScheduleId,
    /// Unique within the tenant.
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
    /// Slots up to this one are processed.
    #[n(8)]
    pub last_slot: Millis,
    /// The last started workflow.
    #[n(9)]
    pub last_workflow: Option<WorkflowId>,
    #[n(10)]
    pub started: u64,
    /// Number of skipped slots.
    #[n(11)]
    pub skipped: u64,
    /// With [`Overlap::Replace`]: the slot that starts when the previous workflow has ended.
    #[n(12)]
    pub waiting_slot: Option<Millis>,
    /// Why the last slot could not be started.
    #[n(13)]
    pub trouble: Option<String>,
    /// Name of the workflow. Absent in records of version 0.1, which contain the definition.
    #[n(14)]
    pub workflow: Option<String>,
}
