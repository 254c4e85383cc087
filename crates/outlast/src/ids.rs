//! Ids from the command line. They are opaque words to people, so one that cannot be is simply one that is not there.

use anyhow::Result;
use model::id::JobId;
use model::queue::QueueRef;

use crate::exit::NotFound;

pub fn job(text: &str) -> Result<JobId> {
    text.parse().map_err(|error| NotFound(format!("there is no such job: {error}")).into())
}

pub fn queue(text: &str) -> Result<QueueRef> {
    text.parse().map_err(|error| NotFound(format!("there is no such queue: {error}")).into())
}
