//! What an invocation is given.

use std::sync::Arc;

use bytes::Bytes;
use model::time::Millis;

use crate::imports::http::Outgoing;

/// Reads the durable state of a container. Blocking is fine: modules run on threads of their own.
pub trait State: Send + Sync {
    fn get(&self, key: &str, name: &str) -> Result<Option<Bytes>, String>;

    /// Names with this prefix in ascending order, after `after`.
    fn list(&self, key: &str, prefix: &str, after: Option<&str>, limit: u32) -> Result<Vec<String>, String>;

    /// Size of the container's state: names and values.
    fn bytes(&self) -> u64;
}

/// Reads the state of jobs that the module has submitted.
pub trait Jobs: Send + Sync {
    fn status(&self, handle: &str) -> Option<String>;
}

/// What a module may do beyond its own state.
#[derive(Clone)]
pub struct Capabilities {
    /// Jobs may be submitted and their states read.
    pub jobs: Option<Arc<dyn Jobs>>,
    /// HTTP requests may be sent.
    pub http: Option<Arc<dyn Outgoing>>,
}

impl Capabilities {
    pub const NONE: Self = Self { jobs: None, http: None };
}

/// Where and when an instance is invoked.
#[derive(Clone)]
pub struct Invocation {
    /// The key whose state is accessed.
    pub key: String,
    /// Identifies the invocation within the cluster. Handles of its jobs begin with it.
    pub id: String,
    pub now: Millis,
    pub state: Arc<dyn State>,
    /// Nothing can be written.
    pub is_query: bool,
}

/// An event for a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub sequence: u64,
    pub source: Source,
    pub body: Bytes,
    /// How often this event was tried before.
    pub failures: u32,
}

/// What an event came from; each with the name of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Timer(String),
    Cron(String),
    Job(String),
    Webhook(String),
    Module(String),
    Api,
}
