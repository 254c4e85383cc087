//! Removal of workflows past their retention, a bounded number of rows per commit.

use std::collections::{BTreeSet, VecDeque};

use model::batch::Keyspace;
use model::change::Change;
use model::codec;
use model::id::WorkflowId;
use model::key;
use model::time::Millis;
use model::workflow::Workflow;

use super::late::Deferred;
use crate::fetch::Fetch;
use crate::input::{Answer, Effect, RequestId};
use crate::shard::Shard;
use crate::step::Step;

/// Sweep over the finished workflows, and the removals in progress.
#[derive(Debug, Default)]
pub(crate) struct WorkflowSweep {
    /// Time of the next fetch.
    next: Millis,
    /// Sweep cursor.
    after: Option<WorkflowId>,
    /// A fetch is in progress.
    fetching: bool,
    /// Workflows being removed, each with the request to answer afterwards. The rows of the first are being fetched.
    removing: VecDeque<(Workflow, Option<RequestId>)>,
    /// Workflows that changed while a fetch was in progress: its records of them are outdated.
    pub(super) touched: BTreeSet<WorkflowId>,
}

impl WorkflowSweep {
    /// Whether a fetch is in progress.
    pub fn is_fetching(&self) -> bool {
        self.fetching
    }

    /// Resumes a removal after a restart.
    pub fn resume_removal(&mut self, record: Workflow) {
        self.removing.push_back((record, None));
    }

    /// Time of the next fetch, unless one is in progress.
    pub fn next(&self) -> Option<Millis> {
        (!self.fetching).then_some(self.next)
    }
}

impl Shard {
    /// Fetches the next finished workflows when the sweep is due.
    pub(super) fn sweep_workflows(&mut self, step: &mut Step) {
        let sweep = &mut self.workflows.sweep;
        if self.now < sweep.next || sweep.fetching {
            return;
        }
        sweep.next = self.now + self.config.sweep_interval;
        sweep.fetching = true;
        let after = sweep.after.unwrap_or(WorkflowId(0));
        let limit = self.config.sweep_chunk;
        step.effects.push(Effect::Fetch(Fetch::FinishedWorkflows { after, limit }));
    }

    /// Starts the removal of expired workflows and advances the sweep cursor.
    pub(crate) fn fetched_finished_workflows(&mut self, found: Vec<Workflow>, more: bool, step: &mut Step) {
        self.workflows.sweep.fetching = false;
        let expired = self.now.saturating_sub(self.config.retention);
        let expired_letters = expired.min(self.now.saturating_sub(self.config.dead_letter_retention));
        let last = found.last().map(|record| (record.id, record.created_at >= expired));
        for record in found {
            let busy = self.workflows.map.contains_key(&record.id)
                || self.workflows.awaiting_fetch.contains_key(&record.id)
                || self.workflows.sweep.touched.contains(&record.id);
            if busy {
                continue;
            }
            let has_failed_compensations = record.rollback.as_ref().is_some_and(|rollback| rollback.failed > 0);
            let due = if has_failed_compensations { expired_letters } else { expired };
            match record.ended_at().is_some_and(|ended| ended < due) {
                // Its rows tell which dead letters go with it.
                true if has_failed_compensations => self.fetch_workflow(record.id, Deferred::Expire, step),
                true => self.start_removal(record, None, step),
                false => {}
            }
        }
        self.workflows.sweep.touched.clear();
        self.workflows.sweep.after = match last {
            // Ids sort by creation: after a workflow younger than the retention none is older.
            Some((last, false)) if more => {
                self.workflows.sweep.next = self.now;
                Some(last)
            }
            Some(_) | None => None,
        };
    }

    /// Removes a fetched workflow with the dead letters of its compensations.
    pub(super) fn remove_fetched(&mut self, id: WorkflowId, request: Option<RequestId>, step: &mut Step) {
        if let Some(workflow) = self.workflows.forget(id) {
            for letter in workflow.unsubmitted(|_| true) {
                step.batch.delete(Keyspace::DeadLetters, &letter.key());
            }
            self.start_removal(workflow.record, request, step);
        }
    }

    /// Starts a removal. It is final with this commit: after a crash it continues.
    fn start_removal(&mut self, mut record: Workflow, request: Option<RequestId>, step: &mut Step) {
        let sweep = &mut self.workflows.sweep;
        if sweep.fetching {
            // The chunk may have been read before: it must not be removed a second time.
            sweep.touched.insert(record.id);
        }
        let is_first = sweep.removing.is_empty();
        let key = record.id.key();
        // Only the mark is needed.
        (record.result, record.reason, record.rollback) = (None, None, None);
        record.notes.clear();
        record.labels.clear();
        record.removing = true;
        step.batch.delete(Keyspace::WorkflowsDone, &key);
        step.batch.put_with(Keyspace::Workflows, &key, |buffer| codec::encode_into(&record, buffer));
        self.workflows.sweep.removing.push_back((record, request));
        if is_first {
            self.fetch_rows_to_remove(step);
        }
    }

    /// Fetches rows of the first workflow being removed.
    pub(crate) fn fetch_rows_to_remove(&mut self, step: &mut Step) {
        if let Some((record, _)) = self.workflows.sweep.removing.front() {
            let limit = self.config.cancel_chunk;
            step.effects.push(Effect::Fetch(Fetch::WorkflowRows { id: record.id, limit }));
        }
    }

    /// Deletes fetched rows; completes the removal after the last.
    pub(crate) fn fetched_rows(&mut self, id: WorkflowId, rows: &[(Keyspace, Vec<u8>)], more: bool, step: &mut Step) {
        let sweep = &mut self.workflows.sweep;
        if sweep.removing.front().is_none_or(|(record, _)| record.id != id) {
            return;
        }
        for (keyspace, key) in rows {
            step.batch.delete(*keyspace, key);
        }
        if more {
            return self.fetch_rows_to_remove(step);
        }
        let Some((record, request)) = self.workflows.sweep.removing.pop_front() else { return };
        step.batch.delete(Keyspace::Workflows, &id.key());
        step.batch.delete(Keyspace::WorkflowSpecs, &id.key());
        if let Some(digest) = record.definition {
            step.batch.delete(Keyspace::ByDefinition, &key::by_definition(digest, id.0));
        }
        // The removed id may be the newest; it must not be reused.
        step.batch.put(Keyspace::Meta, key::META_LAST_ID, &self.ids.last().to_be_bytes());
        step.announce(&Change::WorkflowRemoved { id, queue: record.queue, at: self.now });
        if let Some(request) = request {
            step.answer(request, Answer::WorkflowRemoved);
        }
        self.fetch_rows_to_remove(step);
    }
}
