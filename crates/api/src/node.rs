//! Nodes and health.

use model::id::NodeId;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeView {
    pub id: NodeId,
    /// Number of starts of the node.
    pub incarnation: u64,
    pub version: String,
    /// `ready`, `cordoned` (gets no new work), `draining` (its work is to end as well) or `drained` (it has ended).
    pub state: String,
    /// Why and since when it gets no new work.
    pub cordon: Option<CordonView>,
    /// Attempts on the node.
    pub in_flight: u32,
    pub capacity: CapacityView,
    /// Memory that new programs could use without anything being killed.
    pub memory_available_bytes: Option<u64>,
    /// Sandbox mechanisms and limits of the node.
    pub protections: Vec<ProtectionView>,
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
