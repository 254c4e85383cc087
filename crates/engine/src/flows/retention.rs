//! Forgetting workflows that ended long ago, row by row: however many tasks one had, no commit gets large.

use std::collections::{BTreeSet, VecDeque};

use model::batch::Keyspace;
use model::change::Change;
use model::codec;
use model::id::WorkflowId;
use model::key;
use model::time::Millis;
use model::workflow::Workflow;

use crate::fetch::Fetch;
use crate::input::{Answer, Effect, RequestId};
use crate::shard::Shard;
use crate::step::Step;

/// Where a look through the ended workflows has come to.
#[derive(Debug, Default)]
pub(crate) struct FlowSweep {
    next: Millis,
    after: Option<WorkflowId>,
    asked: bool,
    /// Those that go, and whom to tell when they are gone. The first one's rows are being asked for.
    going: VecDeque<(Workflow, Option<RequestId>)>,
    /// Those that ended again or were looked at while a part of a look is under way: what it brings of them is old.
    pub(super) touched: BTreeSet<WorkflowId>,
}

impl FlowSweep {
    pub fn is_under_way(&self) -> bool {
        self.asked
    }

    /// Puts back one that was being removed.
    pub fn go_on_removing(&mut self, record: Workflow) {
        self.going.push_back((record, None));
    }

    /// When the next look is due, unless one is under way.
    pub fn next(&self) -> Option<Millis> {
        (!self.asked).then_some(self.next)
    }
}

impl Shard {
    pub(super) fn sweep_flows(&mut self, step: &mut Step) {
        let sweep = &mut self.flows.sweep;
        if self.now < sweep.next || sweep.asked {
            return;
        }
        sweep.next = self.now + self.config.sweep_interval;
        sweep.asked = true;
        let after = sweep.after.unwrap_or(WorkflowId(0));
        let limit = self.config.sweep_chunk;
        step.effects.push(Effect::Fetch(Fetch::FinishedWorkflows { after, limit }));
    }

    pub(crate) fn fetched_finished_workflows(&mut self, found: Vec<Workflow>, more: bool, step: &mut Step) {
        self.flows.sweep.asked = false;
        let expired = self.now.saturating_sub(self.config.retention);
        let last = found.last().map(|record| (record.id, record.created_at >= expired));
        for record in found {
            let busy = self.flows.map.contains_key(&record.id)
                || self.flows.asked.contains_key(&record.id)
                || self.flows.sweep.touched.contains(&record.id);
            if !busy && record.ended_at().is_some_and(|ended| ended < expired) {
                self.let_go_of_rows(record, None, step);
            }
        }
        self.flows.sweep.touched.clear();
        self.flows.sweep.after = match last {
            // Ids sort by creation: behind one younger than the retention nothing can be older than it.
            Some((last, false)) if more => {
                self.flows.sweep.next = self.now;
                Some(last)
            }
            Some(_) | None => None,
        };
    }

    /// Takes a workflow that was fetched off the records.
    pub(super) fn take_off_records(&mut self, id: WorkflowId, request: Option<RequestId>, step: &mut Step) {
        if let Some(flow) = self.flows.map.remove(&id) {
            self.let_go_of_rows(flow.record, request, step);
        }
    }

    /// From this commit on nothing brings it back: after a crash the removal goes on where it was.
    fn let_go_of_rows(&mut self, mut record: Workflow, request: Option<RequestId>, step: &mut Step) {
        let is_first = self.flows.sweep.going.is_empty();
        let key = record.id.key();
        // A mark is all that is needed of it.
        (record.result, record.reason, record.rollback) = (None, None, None);
        record.notes.clear();
        record.labels.clear();
        record.removing = true;
        step.batch.delete(Keyspace::WorkflowsDone, &key);
        step.batch.put_with(Keyspace::Workflows, &key, |buffer| codec::encode_into(&record, buffer));
        self.flows.sweep.going.push_back((record, request));
        if is_first {
            self.ask_rows(step);
        }
    }

    pub(super) fn ask_rows(&mut self, step: &mut Step) {
        if let Some((record, _)) = self.flows.sweep.going.front() {
            let limit = self.config.cancel_chunk;
            step.effects.push(Effect::Fetch(Fetch::WorkflowRows { id: record.id, limit }));
        }
    }

    pub(crate) fn fetched_rows(&mut self, id: WorkflowId, rows: &[(Keyspace, Vec<u8>)], more: bool, step: &mut Step) {
        let sweep = &mut self.flows.sweep;
        if sweep.going.front().is_none_or(|(record, _)| record.id != id) {
            return;
        }
        for (keyspace, key) in rows {
            step.batch.delete(*keyspace, key);
        }
        if more {
            return self.ask_rows(step);
        }
        let Some((record, request)) = self.flows.sweep.going.pop_front() else { return };
        step.batch.delete(Keyspace::Workflows, &id.key());
        step.batch.delete(Keyspace::WorkflowSpecs, &id.key());
        // The newest id may go with its record; it must not be handed out again.
        step.batch.put(Keyspace::Meta, key::META_LAST_ID, &self.last_id.to_be_bytes());
        step.tell(&Change::WorkflowRemoved { id, queue: record.queue, at: self.now });
        if let Some(request) = request {
            step.answer(request, Answer::WorkflowRemoved);
        }
        self.ask_rows(step);
    }
}
