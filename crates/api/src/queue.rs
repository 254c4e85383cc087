//! Queues.

use model::id::QueueId;
use model::queue::{Counters, Queue, QueueState};
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueView {
    pub id: QueueId,
    /// Token of the queue. Only in responses to its creation and to requests that name the queue by its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token: Option<String>,
    pub tag: String,
    pub tenant: String,
    pub state: QueueState,
    pub max_retries: u32,
    pub max_running: Option<u32>,
    pub created_at: Timestamp,
    /// True for the queue of a tenant's jobs that name none.
    pub implicit: bool,
    pub counters: Counters,
    /// The queue was created before, under the same idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deduplicated: bool,
}

impl QueueView {
    /// View without the token.
    pub fn new(queue: &Queue) -> Self {
        Self {
            id: queue.id,
            token: None,
            tag: queue.tag.clone(),
            tenant: queue.tenant.clone(),
            state: queue.state,
            max_retries: queue.max_retries,
            max_running: queue.max_running,
            created_at: Timestamp(queue.created_at),
            implicit: queue.implicit,
            counters: queue.counters,
            deduplicated: false,
        }
    }
}

/// Request for a new queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSpec {
    pub tag: String,
    /// Defaults to `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Retries of jobs that do not set their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// How many jobs may run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
}
