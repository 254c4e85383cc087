//! Forged commits that violate a rule of workflows.

use model::batch::{Batch, Keyspace};
use model::codec;
use model::id::{SLOTS, WorkflowId};
use model::json::Json;
use model::key;
use model::time::Millis;
use model::workflow::{
    CatchUp, Compensation, CompensationState, Overlap, RollbackState, Schedule, Tally, TaskKey, TaskRecord, TaskState,
    Totals, Workflow, WorkflowState,
};
use store::Store;

use super::forgery::batch_with;
use crate::ledger::workflows::KnownWorkflow;
use crate::world::World;

/// A violation of a rule of workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkflowSabotage {
    /// Deletes the record of a live workflow.
    Lose,
    /// Runs an ended workflow again without a request.
    Restart,
    /// Ends a workflow with tasks in flight.
    EndEarly,
    /// Runs an ended task again.
    RestartTask,
    /// Changes the result of a task.
    ChangeTaskResult,
    /// Starts a task before the tasks it needs have ended.
    StartTaskEarly,
    /// Runs more items than the concurrency limit allows.
    ExceedConcurrency,
    /// Ends a delay early.
    EndDelayEarly,
    /// Advances the epoch early.
    ReachEpochEarly,
    MiscountTasks,
    MiscountJobs,
    /// Compensates the first task first.
    CompensateInOrder,
    MiscountRollback,
    /// Reports a partial rollback as complete.
    ReportRolledBack,
    /// Starts a second workflow for a slot.
    StartSlotTwice,
    /// Skips a slot without starting a workflow.
    SkipSlot,
}

impl World {
    fn workflow_of(&self, shard: usize, fits: impl Fn(&KnownWorkflow) -> bool) -> Option<&KnownWorkflow> {
        let id = self.shard_id(shard);
        let known =
            self.ledger.workflows.known.values().filter(|workflow| !workflow.removed && !workflow.being_removed);
        known
            .filter(|workflow| self.scenario.shards.owner(workflow.record.id.slot()) == id)
            .find(|workflow| fits(workflow))
    }

    /// A fitting row of a live or ended workflow.
    fn row_of(
        &self,
        shard: usize,
        fits: impl Fn(&KnownWorkflow, TaskKey, &TaskRecord) -> bool,
    ) -> Option<(WorkflowId, TaskKey, TaskRecord)> {
        let found = |workflow: &KnownWorkflow| {
            workflow
                .rows
                .iter()
                .find(|(task_key, row)| fits(workflow, **task_key, row))
                .map(|(task_key, row)| (*task_key, row.clone()))
        };
        let workflow = self.workflow_of(shard, |workflow| found(workflow).is_some())?;
        found(workflow).map(|(task_key, row)| (workflow.record.id, task_key, row))
    }

    /// A batch that violates the rule, if the shard has a fitting record.
    pub(super) fn workflow_forgery(&self, sabotage: WorkflowSabotage, shard: usize) -> Option<Batch> {
        let live = |workflow: &KnownWorkflow| workflow.record.state == WorkflowState::Running;
        let ended = |workflow: &KnownWorkflow| workflow.archived && workflow.record.parent.is_none();
        match sabotage {
            WorkflowSabotage::Lose => {
                let id = self.workflow_of(shard, live)?.record.id;
                batch_with(|batch| batch.delete(Keyspace::Workflows, &id.key()))
            }
            WorkflowSabotage::Restart => {
                let record =
                    Workflow { state: WorkflowState::Running, ..self.workflow_of(shard, ended)?.record.clone() };
                batch_with(|batch| {
                    batch.delete(Keyspace::WorkflowsDone, &record.id.key());
                    put(Keyspace::Workflows, &record, batch);
                })
            }
            WorkflowSabotage::EndEarly => {
                let workflow =
                    self.workflow_of(shard, |workflow| live(workflow) && workflow.record.parent.is_none())?;
                let record = Workflow { state: WorkflowState::Succeeded, ..workflow.record.clone() };
                batch_with(|batch| {
                    batch.delete(Keyspace::Workflows, &record.id.key());
                    put(Keyspace::WorkflowsDone, &record, batch);
                })
            }
            WorkflowSabotage::MiscountTasks => {
                self.with_record(shard, live, |record| record.tasks.add(TaskState::Waiting, 1))
            }
            WorkflowSabotage::MiscountJobs => self.with_record(shard, live, |record| record.totals.jobs += 1),
            WorkflowSabotage::ReachEpochEarly => {
                let early = |workflow: &KnownWorkflow| {
                    live(workflow) && (workflow.record.epoch as usize) + 1 < workflow.plan.epochs.len()
                };
                self.with_record(shard, early, |record| record.epoch += 1)
            }
            WorkflowSabotage::MiscountRollback | WorkflowSabotage::ReportRolledBack => {
                self.forge_rollback(sabotage, shard)
            }
            WorkflowSabotage::StartSlotTwice => self.start_slot_twice(shard),
            WorkflowSabotage::SkipSlot => self.skip_slot(shard),
            WorkflowSabotage::RestartTask
            | WorkflowSabotage::ChangeTaskResult
            | WorkflowSabotage::StartTaskEarly
            | WorkflowSabotage::ExceedConcurrency
            | WorkflowSabotage::EndDelayEarly
            | WorkflowSabotage::CompensateInOrder => self.forge_row(sabotage, shard),
        }
    }

    fn with_record(
        &self,
        shard: usize,
        fits: impl Fn(&KnownWorkflow) -> bool,
        change: impl Fn(&mut Workflow),
    ) -> Option<Batch> {
        let workflow = self.workflow_of(shard, fits)?;
        let mut record = workflow.record.clone();
        change(&mut record);
        batch_with(|batch| {
            put(if workflow.archived { Keyspace::WorkflowsDone } else { Keyspace::Workflows }, &record, batch)
        })
    }

    fn forge_rollback(&self, sabotage: WorkflowSabotage, shard: usize) -> Option<Batch> {
        let partial = |workflow: &KnownWorkflow| {
            workflow
                .record
                .rollback
                .as_ref()
                .is_some_and(|rollback| rollback.state == RollbackState::PartiallyRolledBack)
        };
        let any = |workflow: &KnownWorkflow| workflow.record.rollback.is_some();
        let miscounts = sabotage == WorkflowSabotage::MiscountRollback;
        self.with_record(
            shard,
            |workflow| if miscounts { any(workflow) } else { partial(workflow) },
            |record| {
                let Some(rollback) = record.rollback.as_mut() else { return };
                if miscounts {
                    rollback.compensated += 1;
                } else {
                    rollback.state = RollbackState::RolledBack;
                }
            },
        )
    }

    fn forge_row(&self, sabotage: WorkflowSabotage, shard: usize) -> Option<Batch> {
        let (id, task_key, row) = match sabotage {
            WorkflowSabotage::RestartTask => {
                let (id, task_key, row) = self.row_of(shard, |_, _, row| row.state == TaskState::Succeeded)?;
                (id, task_key, TaskRecord { state: TaskState::Running, ended_at: None, ..row })
            }
            WorkflowSabotage::ChangeTaskResult => {
                let (id, task_key, row) = self.row_of(shard, |_, _, row| row.state == TaskState::Succeeded)?;
                (
                    id,
                    task_key,
                    TaskRecord { result: Some(Json::of(&"forged")), reason: None, began_at: Millis(1), ..row },
                )
            }
            WorkflowSabotage::EndDelayEarly => {
                let (id, task_key, row) = self.row_of(shard, |_, _, row| row.state == TaskState::Sleeping)?;
                let early = row.due.map(|due| Millis(due.0 - 1));
                (id, task_key, TaskRecord { state: TaskState::Succeeded, ended_at: early, due: None, ..row })
            }
            WorkflowSabotage::CompensateInOrder => {
                let (id, task_key, row) = self.row_of(shard, |workflow, _, row| {
                    let behind = |other: &TaskRecord| other.order > row.order && other.compensation.is_none();
                    row.order > 0 && row.compensation.is_none() && workflow.rows.values().any(behind)
                })?;
                let compensation =
                    Compensation { state: CompensationState::Done, job: None, at: Millis(1), dead_letter: None };
                (id, task_key, TaskRecord { compensation: Some(Box::new(compensation)), ..row })
            }
            WorkflowSabotage::StartTaskEarly => {
                let early = |workflow: &KnownWorkflow| -> Option<u32> {
                    let waits = |task: u32| !workflow.rows.contains_key(&TaskKey::of(task));
                    let tasks = workflow.plan.tasks.iter().enumerate().map(|(number, task)| (number as u32, task));
                    let mut tasks =
                        tasks.filter(|(number, task)| waits(*number) && task.needs.iter().any(|need| waits(*need)));
                    tasks.next().map(|(number, _)| number)
                };
                let workflow = self.workflow_of(shard, |workflow| {
                    workflow.record.state == WorkflowState::Running && early(workflow).is_some()
                })?;
                let row = TaskRecord::new(TaskState::Running, Millis(1));
                (workflow.record.id, TaskKey::of(early(workflow)?), row)
            }
            WorkflowSabotage::ExceedConcurrency => return self.exceed_concurrency(shard),
            WorkflowSabotage::Lose
            | WorkflowSabotage::Restart
            | WorkflowSabotage::EndEarly
            | WorkflowSabotage::ReachEpochEarly
            | WorkflowSabotage::MiscountTasks
            | WorkflowSabotage::MiscountJobs
            | WorkflowSabotage::MiscountRollback
            | WorkflowSabotage::ReportRolledBack
            | WorkflowSabotage::StartSlotTwice
            | WorkflowSabotage::SkipSlot => return None,
        };
        batch_with(|batch| put_row(id, task_key, &row, batch))
    }

    /// Runs all items of a task with a concurrency limit.
    fn exceed_concurrency(&self, shard: usize) -> Option<Batch> {
        let (id, task_key, row) = self.row_of(shard, |workflow, task_key, row| {
            let most = workflow.plan.tasks[task_key.task as usize].for_each.as_ref().and_then(|each| each.concurrency);
            row.state == TaskState::Running && row.items.zip(most).is_some_and(|(items, most)| items > most)
        })?;
        let running = TaskRecord::new(TaskState::Running, Millis(1));
        batch_with(|batch| {
            for item in 0..row.items.unwrap_or_default() {
                put_row(id, TaskKey::item(task_key.task, item), &running, batch);
            }
        })
    }

    fn start_slot_twice(&self, shard: usize) -> Option<Batch> {
        let started =
            |workflow: &KnownWorkflow| workflow.record.schedule.is_some_and(|from| from.slot.0.is_multiple_of(60_000));
        let workflow = self.workflow_of(shard, started)?;
        let spec = self.store.get(self.shard_id(shard), Keyspace::WorkflowSpecs, &workflow.record.id.key()).ok()??;
        let again = Workflow {
            id: WorkflowId(workflow.record.id.0 + u64::from(SLOTS)),
            state: WorkflowState::Running,
            run: 1,
            tasks: Tally::waiting(workflow.plan.tasks.len() as u32),
            items: Tally::default(),
            totals: Totals::default(),
            epoch: 0,
            rollback: None,
            notes: Vec::new(),
            ..workflow.record.clone()
        };
        batch_with(|batch| {
            batch.put(Keyspace::WorkflowSpecs, &again.id.key(), &spec);
            put(Keyspace::Workflows, &again, batch);
        })
    }

    fn skip_slot(&self, shard: usize) -> Option<Batch> {
        let id = self.shard_id(shard);
        let all = |schedule: &Schedule| {
            let spec = &schedule.spec;
            spec.catch_up == CatchUp::All && spec.overlap != Overlap::Replace && !schedule.paused
        };
        let known = self.ledger.workflows.schedules.values().filter(|known| !known.removed && all(&known.record));
        let mut own = known.filter(|known| self.scenario.shards.owner(known.record.id.slot()) == id);
        let mut schedule = own.next()?.record.clone();
        schedule.last_slot = schedule.last_slot + Millis(60_000);
        batch_with(|batch| {
            batch.put_with(Keyspace::Schedules, &schedule.id.key(), |buffer| codec::encode_into(&schedule, buffer));
        })
    }
}

fn put(keyspace: Keyspace, record: &Workflow, batch: &mut Batch) {
    batch.put_with(keyspace, &record.id.key(), |buffer| codec::encode_into(record, buffer));
}

fn put_row(id: WorkflowId, task_key: TaskKey, row: &TaskRecord, batch: &mut Batch) {
    batch.put_with(Keyspace::Tasks, &key::task(id, task_key), |buffer| codec::encode_into(row, buffer));
}
