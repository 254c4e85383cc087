//! Rejected messages: messages of runners that break a limit, kept for operators.

use minicbor::{Decode, Encode};

use crate::id::{Attempt, Incarnation, JobId, RunnerId};
use crate::job::{Artifact, Outcome};
use crate::json;
use crate::limits;
use crate::time::Millis;

/// A rejected message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RejectedMessage {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub runner: RunnerId,
    #[n(2)]
    pub incarnation: Incarnation,
    #[n(3)]
    pub sequence: u64,
    #[n(4)]
    pub job: JobId,
    #[n(5)]
    pub attempt: Attempt,
    /// The broken limit.
    #[n(6)]
    pub why: String,
}

impl Outcome {
    /// The limit that the outcome breaks, if any.
    pub fn beyond_limits(&self) -> Option<String> {
        let result = self.result.as_ref().map_or(0, |result| result.as_bytes().len());
        if result > limits::RESULT_BYTES_MAX {
            return Some(format!("a result of {result} bytes; at most {} are taken", limits::RESULT_BYTES_MAX));
        }
        if let Some(result) = &self.result
            && json::depth(result.as_bytes()) > json::VALUE_DEPTH_MAX
        {
            return Some(format!("a result nested more than {} levels deep", json::VALUE_DEPTH_MAX));
        }
        if Artifact::fitting(&self.artifacts) < self.artifacts.len() {
            return Some(format!("{} files, which is more than a record keeps", self.artifacts.len()));
        }
        None
    }
}
