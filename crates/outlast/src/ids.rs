//! Ids from the command line. Ids are opaque to users, so a malformed one is reported as not found.

use anyhow::Result;
use model::blob::{BlobId, WorkerId};
use model::id::{JobId, NodeId, ScheduleId, WorkflowId};
use model::queue::QueueRef;

use crate::exit::NotFound;

pub fn job(text: &str) -> Result<JobId> {
    text.parse().map_err(|error| NotFound(format!("no such job: {error}")).into())
}

pub fn queue(text: &str) -> Result<QueueRef> {
    text.parse().map_err(|error| NotFound(format!("no such queue: {error}")).into())
}

pub fn blob(text: &str) -> Result<BlobId> {
    text.parse().map_err(|error| NotFound(format!("no such blob: {error}")).into())
}

pub fn worker(text: &str) -> Result<WorkerId> {
    text.parse().map_err(|error| NotFound(format!("no such worker: {error}")).into())
}

pub fn node(text: &str) -> Result<NodeId> {
    text.parse().map_err(|error| NotFound(format!("no such node: {error}")).into())
}

pub fn workflow(text: &str) -> Result<WorkflowId> {
    text.parse().map_err(|error| NotFound(format!("no such workflow: {error}")).into())
}

pub fn schedule(text: &str) -> Result<ScheduleId> {
    text.parse().map_err(|error| NotFound(format!("no such schedule: {error}")).into())
}
