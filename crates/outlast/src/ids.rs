//! Ids from the command line. They are opaque words to people, so one that cannot be is simply one that is not there.

use anyhow::Result;
use model::blob::{BlobId, WorkerId};
use model::id::{JobId, NodeId, ScheduleId, WorkflowId};
use model::queue::QueueRef;

use crate::exit::NotFound;

pub fn job(text: &str) -> Result<JobId> {
    text.parse().map_err(|error| NotFound(format!("there is no such job: {error}")).into())
}

pub fn queue(text: &str) -> Result<QueueRef> {
    text.parse().map_err(|error| NotFound(format!("there is no such queue: {error}")).into())
}

pub fn blob(text: &str) -> Result<BlobId> {
    text.parse().map_err(|error| NotFound(format!("there is no such blob: {error}")).into())
}

pub fn worker(text: &str) -> Result<WorkerId> {
    text.parse().map_err(|error| NotFound(format!("there is no such worker: {error}")).into())
}

pub fn node(text: &str) -> Result<NodeId> {
    text.parse().map_err(|error| NotFound(format!("there is no such node: {error}")).into())
}

pub fn workflow(text: &str) -> Result<WorkflowId> {
    text.parse().map_err(|error| NotFound(format!("there is no such workflow: {error}")).into())
}

pub fn schedule(text: &str) -> Result<ScheduleId> {
    text.parse().map_err(|error| NotFound(format!("there is no such schedule: {error}")).into())
}
