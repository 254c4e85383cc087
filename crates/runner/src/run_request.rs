//! A shard's request to run an attempt.

use bytes::Bytes;
use model::codec::DecodeError;
use model::spec::{Task, decode_task};
use model::verdict::Constraints;

pub(crate) struct RunRequest {
    pub spec: Bytes,
    pub constraints: Option<Box<Constraints>>,
    /// Of an exclusive attempt.
    pub lease: Option<link::Lease>,
}

impl RunRequest {
    /// The task, limited by the policy's constraints.
    pub fn task(&self) -> Result<Task, DecodeError> {
        let mut task = decode_task(&self.spec)?;
        if let Some(constraints) = &self.constraints {
            task.constrain(constraints);
        }
        Ok(task)
    }
}
