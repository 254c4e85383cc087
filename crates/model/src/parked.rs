//! A runner's word that could not be taken: kept for an operator to look at, while the stream goes on.

use minicbor::{Decode, Encode};

use crate::id::{Attempt, Incarnation, JobId, RunnerId};
use crate::job::{Artifact, Outcome};
use crate::limits;
use crate::time::Millis;

/// What is kept of such a word.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ParkedWord {
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
    /// What is wrong with it.
    #[n(6)]
    pub why: String,
}

impl Outcome {
    /// What of it no record may carry, if anything.
    pub fn beyond_limits(&self) -> Option<String> {
        let result = self.result.as_ref().map_or(0, |result| result.as_bytes().len());
        if result > limits::RESULT_BYTES_MAX {
            return Some(format!("a result of {result} bytes; at most {} are taken", limits::RESULT_BYTES_MAX));
        }
        if Artifact::fitting(&self.artifacts) < self.artifacts.len() {
            return Some(format!("{} files, which is more than a record keeps", self.artifacts.len()));
        }
        None
    }
}
