//! The outcome of one round of inputs: a batch to commit, and effects to perform afterwards. With an empty batch the owner's
//! epoch is confirmed instead: a superseded owner performs no effects.

use model::batch::Batch;
use model::change::Change;
use model::codec;
use model::job::Job;
use model::workflow::Workflow;

use crate::anomaly::Anomaly;
use crate::input::{Answer, Effect, RequestId};
use crate::jobs::LiveJob;

/// Collects a shard's writes and effects. Reusable: buffers keep their capacity.
#[derive(Debug, Default)]
pub struct Step {
    pub batch: Batch,
    pub effects: Vec<Effect>,
    /// Jobs that became terminal. Filled by the flush, which removes them from memory.
    pub ended: Vec<Ended>,
    /// Workflows that ended.
    pub ended_workflows: Vec<Workflow>,
    /// Anomalies to log, each with the operation that found it.
    pub anomalies: Vec<(Anomaly, &'static str)>,
}

/// A terminal job, as it left memory.
#[derive(Debug)]
pub struct Ended(pub(crate) Box<LiveJob>);

impl Ended {
    pub fn job(&self) -> &Job {
        &self.0.job
    }

    pub fn into_job(self) -> Job {
        self.0.into_job()
    }
}

impl Step {
    pub fn new() -> Self {
        Self::default()
    }

    /// Clears everything but the buffers' capacity.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.effects.clear();
        self.ended.clear();
        self.anomalies.clear();
        self.ended_workflows.clear();
    }

    pub(crate) fn answer(&mut self, request: RequestId, answer: Answer) {
        self.effects.push(Effect::Answer { request, answer });
    }

    pub(crate) fn announce(&mut self, change: &Change) {
        self.batch.event_with(|buffer| codec::encode_into(change, buffer));
    }
}
