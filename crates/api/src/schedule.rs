//! Schedules.

use model::id::{QueueId, ScheduleId, WorkflowId};
use model::json::Json;
use model::queue::QueueRef;
use model::time::Timestamp;
use model::workflow::{CatchUp, Overlap, Schedule};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Schedule)]
pub struct ScheduleView {
    pub id: ScheduleId,
    pub name: String,
    pub tenant: String,
    /// Queue of the jobs of its workflows; null for the implicit queue of the tenant.
    pub queue: Option<QueueId>,
    pub cron: String,
    pub timezone: String,
    pub catch_up: CatchUp,
    pub overlap: Overlap,
    pub jitter_ms: u64,
    pub paused: bool,
    pub created_at: Timestamp,
    /// `Outlast-Actor` of the request that created it.
    pub submitter: Option<String>,
    /// The last slot that was started or skipped.
    pub last_slot: Option<Timestamp>,
    /// Null while paused.
    pub next_slot: Option<Timestamp>,
    /// The workflow started last.
    pub last_workflow: Option<WorkflowId>,
    /// Number of started slots.
    pub started: u64,
    /// Number of skipped slots.
    pub skipped: u64,
    /// A slot that starts once the workflow of the previous one has ended.
    pub waiting_slot: Option<Timestamp>,
    /// Why the last slot could not be started.
    pub trouble: Option<String>,
    /// Name of the workflow.
    pub workflow: String,
    pub inputs: Json,
}

impl ScheduleView {
    /// View without `next_slot` and `workflow`: these require parsing the spec.
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
            // The record of a new schedule has its creation here, which is no slot.
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

/// Request for a new schedule. Exactly one of `definition` and `yaml` is required.
///
/// `D` is the form of the definition: owned JSON, or a slice of the body on the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = ScheduleSpec, bound = "")]
#[serde(deny_unknown_fields)]
pub struct ScheduleStart<D = Json> {
    /// Unique within the tenant.
    pub name: String,
    /// Cron expression.
    pub cron: String,
    /// IANA name of a time zone; defaults to UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Definition of the workflow, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Json>)]
    pub definition: Option<D>,
    /// Definition of the workflow, as YAML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yaml: Option<String>,
    /// Inputs of the workflow by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub inputs: Option<serde_json::Map<String, serde_json::Value>>,
    /// Queue of the jobs; defaults to the implicit queue of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueRef>,
    /// Defaults to `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default)]
    pub catch_up: CatchUp,
    #[serde(default)]
    pub overlap: Overlap,
    /// Longest random delay of a start.
    #[serde(default)]
    pub jitter_ms: u64,
    #[serde(default)]
    pub paused: bool,
}
