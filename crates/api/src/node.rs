//! Nodes and health.

use std::collections::{BTreeMap, BTreeSet};

use model::id::NodeId;
use model::session::SessionState;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeView {
    pub id: NodeId,
    /// For people; not unique.
    pub name: String,
    /// `control` (accepts jobs and runs them) or `runner` (runs them).
    pub role: String,
    /// Number of starts of the node. 0: it was not connected since this server started.
    pub incarnation: u64,
    pub version: String,
    /// `ready`, `cordoned` (gets no new work), `draining` (its work is to end as well), `drained` (it has ended),
    /// `disconnected` (its work goes on; it is lost if it does not return), `lost` (its work was given to others), or the
    /// state of its session: `created`, `paused`, `abandoned`, `sunset`.
    pub state: String,
    /// Whether it is connected, answers, and is not given up.
    pub healthy: bool,
    pub session: SessionView,
    /// What its probes say: `alive`, `probe_failed`, `suspected`, `dead` or `left`. Absent if it is not probed.
    pub probes: Option<String>,
    /// Address from which it is connected.
    pub address: Option<String>,
    pub connected_since: Option<Timestamp>,
    /// When it joined the cluster. Absent for control nodes.
    pub joined_at: Option<Timestamp>,
    /// Why and since when it gets no new work.
    pub cordon: Option<CordonView>,
    /// Distinct jobs fail on it through its own fault, and it is not cordoned, because its pool has no other node.
    #[serde(default)]
    pub failing: Option<String>,
    /// Attempts on the node.
    pub in_flight: u32,
    /// The same by kind: slots in use.
    pub in_use: CapacityView,
    pub capacity: CapacityView,
    /// Load of its machine. Absent until the node has reported it.
    pub load: Option<LoadView>,
    /// Why it takes no new work at present, in its own judgement.
    pub refuses_work: Option<String>,
    pub pools: BTreeSet<String>,
    pub capabilities: BTreeSet<String>,
    pub labels: BTreeMap<String, String>,
    pub cores: u32,
    pub memory_bytes: u64,
    /// Of the file system with its data directory.
    pub disk_bytes: u64,
    pub disk_available_bytes: u64,
    /// Number of GPUs by model.
    pub gpus: BTreeMap<String, u32>,
    /// Memory that new programs could use without anything being killed.
    pub memory_available_bytes: Option<u64>,
    /// Sandbox mechanisms and limits of the node.
    pub protections: Vec<ProtectionView>,
    /// What happened to the node, as this server saw it, oldest first. In lists it is empty.
    pub timeline: Vec<NodeEventView>,
}

/// A change of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NodeEvent)]
pub struct NodeEventView {
    pub at: Timestamp,
    /// For example `connected`, `suspected`, `dead` or `lost`.
    pub event: String,
    pub detail: Option<String>,
}

/// Session of a node: whether it takes work, lets it end, or is given up. States only move forward: `created`, `ready`,
/// `draining`, `paused`, `abandoned`, `sunset`. Uncordoning a node, or a new start of an abandoned one, begins another
/// session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionView {
    pub node: NodeId,
    pub state: SessionState,
    /// Counts the sessions of the node, from 1.
    pub number: u64,
    /// When it entered its state. Absent if that is not on record.
    pub since: Option<Timestamp>,
    /// Who moved it to its state. Absent if it got there by itself.
    pub by: Option<String>,
    pub reason: Option<String>,
}

/// Request to move the session of a node. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MoveSession {
    /// Shown to other operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
}

/// A move of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionMove {
    Ready,
    Drain,
    Pause,
    Abandon,
    Sunset,
}

impl SessionMove {
    pub const ALL: [Self; 5] = [Self::Ready, Self::Drain, Self::Pause, Self::Abandon, Self::Sunset];

    /// Last part of its route.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Pause => "pause",
            Self::Abandon => "abandon",
            Self::Sunset => "sunset",
        }
    }

    /// The state that it leads to.
    pub fn target(self) -> SessionState {
        match self {
            Self::Ready => SessionState::Ready,
            Self::Drain => SessionState::Draining,
            Self::Pause => SessionState::Paused,
            Self::Abandon => SessionState::Abandoned,
            Self::Sunset => SessionState::Sunset,
        }
    }
}

/// Load of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Load)]
pub struct LoadView {
    pub cpu_percent: u8,
    pub gpu_percent: u8,
}

/// Request for a join token. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateJoinToken {
    /// Several nodes may join with it. Default: one.
    pub reusable: bool,
    /// Default: one hour. At most a year.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_in_ms: Option<u64>,
    /// Shown to other operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub note: Option<String>,
}

/// A join token. It contains a secret that is shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NewJoinToken)]
pub struct NewJoinTokenView {
    pub id: String,
    /// For `outlast join --token`.
    pub token: String,
    /// Address of this server for `outlast join`.
    pub address: String,
    pub expires_at: Option<Timestamp>,
    pub reusable: bool,
}

/// A join token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = JoinToken)]
pub struct JoinTokenView {
    pub id: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub reusable: bool,
    /// Nodes that joined with it.
    pub used: u32,
    /// `usable`, `used`, `expired` or `revoked`.
    pub state: String,
    pub note: Option<String>,
}

/// How many jobs of each kind a node runs at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Capacity)]
pub struct CapacityView {
    pub process: u32,
    pub wasm: u32,
    pub echo: u32,
}

/// A node gets no new work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Cordon)]
pub struct CordonView {
    pub at: Timestamp,
    /// Who cordoned it.
    pub by: Option<String>,
    pub reason: Option<String>,
    /// Attempts that have not ended by then are taken back; their jobs use no retry.
    pub drain_deadline: Option<Timestamp>,
    /// Set if the server cordoned it because distinct jobs failed on it: the first of these failures. Jobs get back what
    /// they were charged for its failures since then.
    #[serde(default)]
    pub failing_since: Option<Timestamp>,
}

/// Request to cordon a node. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CordonNode {
    /// Shown to other operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
}

/// Request to drain a node. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DrainNode {
    /// Shown to other operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// Time for the attempts on the node to end. Then they are taken back, and their jobs run elsewhere without using a
    /// retry. Default: they may take as long as they like.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub deadline_ms: Option<u64>,
}

/// A sandbox mechanism or limit of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Protection)]
pub struct ProtectionView {
    pub name: String,
    pub in_force: bool,
    /// The mechanism in use, or the reason why there is none.
    pub how: String,
}

/// Health of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Health)]
pub struct HealthView {
    /// `alive` or `ready`.
    pub status: String,
    pub version: String,
}
