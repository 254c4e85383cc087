//! Nodes and health.

use model::id::NodeId;
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
