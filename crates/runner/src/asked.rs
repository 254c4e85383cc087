//! What a shard has asked a runner for.

use bytes::Bytes;
use model::codec::DecodeError;
use model::spec::{Task, decode_task};
use model::verdict::Constraints;

/// What a shard has asked for.
pub(crate) struct Asked {
    pub spec: Bytes,
    pub constraints: Option<Box<Constraints>>,
}

impl Asked {
    /// No more than the policy allows.
    pub fn task(&self) -> Result<Task, DecodeError> {
        let mut task = decode_task(&self.spec)?;
        if let Some(constraints) = &self.constraints {
            task.constrain(constraints);
        }
        Ok(task)
    }
}
