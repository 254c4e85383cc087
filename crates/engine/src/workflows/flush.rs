//! Writes changed workflows, and moves ended ones to the finished workflows.

use model::batch::Keyspace;
use model::codec;
use model::id::WorkflowId;
use model::key;

use super::live::LiveWorkflow;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

/// Approximate size of a task's row without its result, in bytes.
pub(super) const ROW_BYTES: usize = 80;
/// Approximate size of a workflow's record, in bytes.
pub(super) const WORKFLOW_BYTES: usize = 300;

impl LiveWorkflow {
    /// Writes the changed rows of tasks and items.
    fn flush_rows(&mut self, step: &mut Step) {
        let id = self.record.id;
        for task_key in std::mem::take(&mut self.dirty_rows) {
            let live_task = &mut self.tasks[task_key.task as usize];
            let (dirty, record) = match task_key.item {
                None => (&mut live_task.dirty, &live_task.record),
                Some(item) => {
                    let Some(item) = live_task.for_each.as_mut().and_then(|each| each.items.get_mut(item as usize))
                    else {
                        continue;
                    };
                    (&mut item.dirty, &item.record)
                }
            };
            *dirty = false;
            if let Some(record) = record {
                let key = key::task(id, task_key);
                step.batch.put_with(Keyspace::Tasks, &key, |buffer| codec::encode_into(&**record, buffer));
            }
        }
    }
}

impl Shard {
    /// Writes all changed workflows and schedules to the step's batch.
    pub(crate) fn flush_workflows(&mut self, step: &mut Step) {
        self.workflows.dirty_bytes = 0;
        for id in std::mem::take(&mut self.workflows.dirty) {
            let Some(workflow) = self.workflows.map.get_mut(&id) else {
                self.anomalies.note(Anomaly::MissingWorkflow(id), "flush workflows");
                continue;
            };
            workflow.dirty = false;
            workflow.flush_rows(step);
            let key = id.key();
            if workflow.moves_to_finished {
                step.batch
                    .put_with(Keyspace::WorkflowsDone, &key, |buffer| codec::encode_into(&workflow.record, buffer));
                if workflow.stored {
                    step.batch.delete(Keyspace::Workflows, &key);
                }
                self.evict_workflow(id);
                continue;
            }
            step.batch.put_with(Keyspace::Workflows, &key, |buffer| codec::encode_into(&workflow.record, buffer));
            workflow.stored = true;
            if std::mem::take(&mut workflow.was_finished) {
                step.batch.delete(Keyspace::WorkflowsDone, &key);
            }
        }
        self.flush_schedules(step);
    }

    /// Drops a finished workflow from memory.
    fn evict_workflow(&mut self, id: WorkflowId) {
        let Some(workflow) = self.workflows.forget(id) else { return };
        if let Some((parent, _)) = workflow.record.parent
            && let Some(parent) = self.workflows.map.get_mut(&parent)
        {
            parent.children.remove(&id);
        }
        if workflow.holds_queue {
            self.release_queue(workflow.record.queue);
        }
        if self.workflows.sweep.is_fetching() {
            self.workflows.sweep.touched.insert(id);
        }
    }

    /// Moves an ended workflow to the finished ones with this step's commit. Its sub-workflows follow.
    pub(super) fn move_to_finished(&mut self, id: WorkflowId) {
        if let Some(workflow) = self.workflows.touch(id) {
            workflow.moves_to_finished = true;
            let children: Vec<WorkflowId> = workflow.children.iter().copied().collect();
            self.workflows.children_to_finish.extend(children);
        }
    }

    /// Moves sub-workflows of finished workflows, as many as fit into this step.
    pub(super) fn move_finished_children(&mut self, step: &mut Step) {
        while !self.is_full(step)
            && let Some(id) = self.workflows.children_to_finish.pop_front()
        {
            self.backlog.add_written(WORKFLOW_BYTES);
            self.move_to_finished(id);
        }
    }
}
