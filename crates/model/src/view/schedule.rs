//! Schedules as the API shows them.

use serde::{Deserialize, Serialize};

use crate::id::{QueueId, ScheduleId, WorkflowId};
use crate::json::Json;
use crate::queue::QueueRef;
use crate::time::Timestamp;
use crate::workflow::{CatchUp, Overlap, Schedule};

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleView {
    pub id: ScheduleId,
    pub name: String,
    pub tenant: String,
    /// Where the jobs of its workflows stand in line; absent: the implicit queue of its tenant.
    pub queue: Option<QueueId>,
    pub cron: String,
    pub timezone: String,
    pub catch_up: CatchUp,
    pub overlap: Overlap,
    pub jitter_ms: u64,
    pub paused: bool,
    pub created_at: Timestamp,
    pub submitter: Option<String>,
    /// Slots up to this one have had their turn.
    pub last_slot: Option<Timestamp>,
    /// Absent while it is paused.
    pub next_slot: Option<Timestamp>,
    /// The workflow that was started last.
    pub last_workflow: Option<WorkflowId>,
    pub started: u64,
    /// Slots that were left out.
    pub skipped: u64,
    /// A slot that starts as soon as the workflow of the one before has ended.
    pub waiting_slot: Option<Timestamp>,
    /// Why the last slot could not be started, if so.
    pub trouble: Option<String>,
    /// The name of what it starts.
    pub workflow: String,
    pub inputs: Json,
}

impl ScheduleView {
    /// Without the next slot and the name of what it starts, which take the reading of its spec.
    pub fn new(schedule: &Schedule) -> Self {
        let spec = &schedule.spec;
        Self {
            id: schedule.id,
            name: schedule.name.clone(),
            tenant: schedule.tenant.clone(),
            queue: schedule.queue,
            cron: spec.cron.clone(),
            timezone: spec.zone.clone(),
            catch_up: spec.catch_up,
            overlap: spec.overlap,
            jitter_ms: spec.jitter.0,
            paused: schedule.paused,
            created_at: Timestamp(schedule.created_at),
            submitter: schedule.submitter.as_deref().map(str::to_owned),
            // A new schedule begins with its making; that is no slot.
            last_slot: (schedule.started + schedule.skipped > 0).then_some(Timestamp(schedule.last_slot)),
            next_slot: None,
            last_workflow: schedule.last_workflow,
            started: schedule.started,
            skipped: schedule.skipped,
            waiting_slot: schedule.waiting_slot.map(Timestamp),
            trouble: schedule.trouble.clone(),
            workflow: String::new(),
            inputs: spec.inputs.clone(),
        }
    }
}

/// What to make: the body of the request. Exactly one of `definition` and `yaml` is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleStart {
    pub name: String,
    pub cron: String,
    /// An IANA name; absent: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yaml: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default)]
    pub catch_up: CatchUp,
    #[serde(default)]
    pub overlap: Overlap,
    #[serde(default)]
    pub jitter_ms: u64,
    #[serde(default)]
    pub paused: bool,
}
