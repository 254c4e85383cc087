//! Writing what has changed of workflows, and moving those that have ended to the ended ones.

use model::batch::Keyspace;
use model::codec;
use model::id::WorkflowId;
use model::key;
use model::workflow::Workflow;

use super::flow::Flow;
use crate::shard::Shard;
use crate::step::Step;

/// About how much the row of a task takes, without its result.
pub(super) const ROW_BYTES: usize = 80;
/// About how much the record of a workflow takes.
pub(super) const FLOW_BYTES: usize = 300;

pub(super) fn put_done(record: &Workflow, step: &mut Step) {
    let key = record.id.key();
    step.batch.put_with(Keyspace::WorkflowsDone, &key, |buffer| codec::encode_into(record, buffer));
    step.batch.delete(Keyspace::Workflows, &key);
}

impl Flow {
    fn flush_rows(&mut self, step: &mut Step) {
        let id = self.record.id;
        for place in std::mem::take(&mut self.dirty_rows) {
            let slot = &mut self.slots[place.task as usize];
            let (dirty, record) = match place.item {
                None => (&mut slot.dirty, &slot.record),
                Some(item) => {
                    let Some(item) = slot.each.as_mut().and_then(|each| each.slots.get_mut(item as usize)) else {
                        continue;
                    };
                    (&mut item.dirty, &item.record)
                }
            };
            *dirty = false;
            if let Some(record) = record {
                let key = key::task(id, place);
                step.batch.put_with(Keyspace::Tasks, &key, |buffer| codec::encode_into(&**record, buffer));
            }
        }
    }
}

impl Shard {
    pub(crate) fn flush_flows(&mut self, step: &mut Step) {
        for id in std::mem::take(&mut self.flows.dirty) {
            let Some(flow) = self.flows.map.get_mut(&id) else { continue };
            flow.dirty = false;
            flow.flush_rows(step);
            let key = id.key();
            if flow.files {
                step.batch.put_with(Keyspace::WorkflowsDone, &key, |buffer| codec::encode_into(&flow.record, buffer));
                if flow.stored {
                    step.batch.delete(Keyspace::Workflows, &key);
                }
                self.let_go(id);
                continue;
            }
            step.batch.put_with(Keyspace::Workflows, &key, |buffer| codec::encode_into(&flow.record, buffer));
            flow.stored = true;
            if std::mem::take(&mut flow.was_done) {
                step.batch.delete(Keyspace::WorkflowsDone, &key);
            }
        }
        self.flush_schedules(step);
    }

    /// It is on disk only from now on.
    fn let_go(&mut self, id: WorkflowId) {
        let Some(flow) = self.flows.map.remove(&id) else { return };
        if let Some((parent, _)) = flow.record.parent
            && let Some(parent) = self.flows.map.get_mut(&parent)
        {
            parent.children.remove(&id);
        }
        if flow.holds_queue {
            self.let_queue_go(flow.record.queue);
        }
        if self.flows.sweep.is_under_way() {
            self.flows.sweep.touched.insert(id);
        }
    }

    /// A workflow has ended: it goes to the ended ones with this step's commit, and all that is part of it follows.
    pub(super) fn file(&mut self, id: WorkflowId) {
        if let Some(flow) = self.flows.touch(id) {
            flow.files = true;
            let children: Vec<WorkflowId> = flow.children.iter().copied().collect();
            self.flows.filing.extend(children);
        }
    }

    pub(super) fn go_on_filing(&mut self, step: &mut Step) {
        while !self.is_full(step)
            && let Some(id) = self.flows.filing.pop_front()
        {
            self.dirty_bytes += FLOW_BYTES;
            self.file(id);
        }
    }
}
