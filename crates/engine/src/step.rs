//! What one round of inputs leads to: one batch to commit, and effects to perform afterwards.

use model::batch::Batch;
use model::change::Change;
use model::codec;
use model::id::JobId;
use model::job::Job;
use model::workflow::Workflow;

use crate::input::{Answer, Effect, RequestId};
use crate::shard::Entry;

/// Collects what a shard decides. Reuse one: its buffers stay.
#[derive(Debug, Default)]
pub struct Step {
    pub batch: Batch,
    pub effects: Vec<Effect>,
    /// Jobs that became terminal, for those who wait for them. Filled by the flush, which takes them out of memory.
    pub ended: Vec<Ended>,
    /// Workflows that ended, for those who wait for them.
    pub ended_workflows: Vec<Workflow>,
    /// Jobs whose records are gone, so that whatever else is kept of them can go, too.
    pub removed: Vec<JobId>,
}

/// A job that has ended, as it was when it left memory.
#[derive(Debug)]
pub struct Ended(pub(crate) Box<Entry>);

impl Ended {
    pub fn job(&self) -> &Job {
        &self.0.job
    }

    pub fn into_job(self) -> Job {
        self.0.job
    }
}

impl Step {
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything but the buffers.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.effects.clear();
        self.ended.clear();
        self.removed.clear();
        self.ended_workflows.clear();
    }

    pub(crate) fn answer(&mut self, request: RequestId, answer: Answer) {
        self.effects.push(Effect::Answer { request, answer });
    }

    pub(crate) fn tell(&mut self, change: &Change) {
        if let Change::JobRemoved { id, .. } = change {
            self.removed.push(*id);
        }
        self.batch.event_with(|buffer| codec::encode_into(change, buffer));
    }
}
