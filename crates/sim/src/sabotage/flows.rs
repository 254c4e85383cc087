//! Commits about workflows that no owner would ever make.

use model::batch::{Batch, Keyspace};
use model::codec;
use model::id::WorkflowId;
use model::json::Json;
use model::key;
use model::time::Millis;
use model::workflow::{
    CatchUp, Compensation, CompensationState, Overlap, Place, RollbackState, Schedule, Tally, TaskRecord, TaskState,
    Totals, Workflow, WorkflowState,
};
use store::Store;

use super::forgery::made;
use crate::ledger::flows::KnownFlow;
use crate::world::World;

/// A rule about workflows to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowSabotage {
    /// The record of a live workflow disappears.
    Lose,
    /// A workflow that has ended runs again, and nobody asked for it.
    Revive,
    /// It is said to have ended while its tasks are under way.
    EndEarly,
    /// A task that has ended runs again.
    ReviveTask,
    /// The result of a task changes.
    ChangeTaskResult,
    /// A task begins before what it needs has ended.
    BeginEarly,
    /// More items are under way than may be.
    CrowdItems,
    /// A delay ends before it is over.
    EndDelayEarly,
    /// An epoch is said to be reached.
    ReachEpochEarly,
    MiscountTasks,
    MiscountJobs,
    /// What was done first is undone first.
    UndoInOrder,
    MiscountRollback,
    /// What could not be undone is said to be.
    SayUndone,
    /// A slot starts a second workflow.
    StartSlotTwice,
    /// A slot passes, and nothing is started.
    SkipSlot,
}

impl World {
    fn flow_of(&self, shard: usize, fits: impl Fn(&KnownFlow) -> bool) -> Option<&KnownFlow> {
        let id = self.shard_id(shard);
        let known = self.ledger.flows.known.values().filter(|flow| !flow.removed && !flow.crumbling);
        known.filter(|flow| self.plan.shards.owner(flow.record.id.slot()) == id).find(|flow| fits(flow))
    }

    /// A row of a live or ended workflow that fits.
    fn row_of(
        &self,
        shard: usize,
        fits: impl Fn(&KnownFlow, Place, &TaskRecord) -> bool,
    ) -> Option<(WorkflowId, Place, TaskRecord)> {
        let found = |flow: &KnownFlow| {
            flow.rows.iter().find(|(place, row)| fits(flow, **place, row)).map(|(place, row)| (*place, row.clone()))
        };
        let flow = self.flow_of(shard, |flow| found(flow).is_some())?;
        found(flow).map(|(place, row)| (flow.record.id, place, row))
    }

    /// A batch that breaks the rule, if there is anything to break it with.
    pub(super) fn flow_forgery(&self, sabotage: FlowSabotage, shard: usize) -> Option<Batch> {
        let live = |flow: &KnownFlow| flow.record.state == WorkflowState::Running;
        let ended = |flow: &KnownFlow| flow.filed && flow.record.parent.is_none();
        match sabotage {
            FlowSabotage::Lose => {
                let id = self.flow_of(shard, live)?.record.id;
                made(|batch| batch.delete(Keyspace::Workflows, &id.key()))
            }
            FlowSabotage::Revive => {
                let record = Workflow { state: WorkflowState::Running, ..self.flow_of(shard, ended)?.record.clone() };
                made(|batch| {
                    batch.delete(Keyspace::WorkflowsDone, &record.id.key());
                    put(Keyspace::Workflows, &record, batch);
                })
            }
            FlowSabotage::EndEarly => {
                let flow = self.flow_of(shard, |flow| live(flow) && flow.record.parent.is_none())?;
                let record = Workflow { state: WorkflowState::Succeeded, ..flow.record.clone() };
                made(|batch| {
                    batch.delete(Keyspace::Workflows, &record.id.key());
                    put(Keyspace::WorkflowsDone, &record, batch);
                })
            }
            FlowSabotage::MiscountTasks => {
                self.with_record(shard, live, |record| record.tasks.add(TaskState::Waiting, 1))
            }
            FlowSabotage::MiscountJobs => self.with_record(shard, live, |record| record.totals.jobs += 1),
            FlowSabotage::ReachEpochEarly => {
                let early = |flow: &KnownFlow| live(flow) && (flow.record.epoch as usize) + 1 < flow.plan.epochs.len();
                self.with_record(shard, early, |record| record.epoch += 1)
            }
            FlowSabotage::MiscountRollback | FlowSabotage::SayUndone => self.forge_rollback(sabotage, shard),
            FlowSabotage::StartSlotTwice => self.start_slot_twice(shard),
            FlowSabotage::SkipSlot => self.skip_slot(shard),
            FlowSabotage::ReviveTask
            | FlowSabotage::ChangeTaskResult
            | FlowSabotage::BeginEarly
            | FlowSabotage::CrowdItems
            | FlowSabotage::EndDelayEarly
            | FlowSabotage::UndoInOrder => self.forge_row(sabotage, shard),
        }
    }

    fn with_record(
        &self,
        shard: usize,
        fits: impl Fn(&KnownFlow) -> bool,
        change: impl Fn(&mut Workflow),
    ) -> Option<Batch> {
        let flow = self.flow_of(shard, fits)?;
        let mut record = flow.record.clone();
        change(&mut record);
        made(|batch| put(if flow.filed { Keyspace::WorkflowsDone } else { Keyspace::Workflows }, &record, batch))
    }

    fn forge_rollback(&self, sabotage: FlowSabotage, shard: usize) -> Option<Batch> {
        let partial = |flow: &KnownFlow| {
            flow.record.rollback.as_ref().is_some_and(|undo| undo.state == RollbackState::PartiallyRolledBack)
        };
        let any = |flow: &KnownFlow| flow.record.rollback.is_some();
        let miscounts = sabotage == FlowSabotage::MiscountRollback;
        self.with_record(
            shard,
            |flow| if miscounts { any(flow) } else { partial(flow) },
            |record| {
                let Some(rollback) = record.rollback.as_mut() else { return };
                if miscounts {
                    rollback.undone += 1;
                } else {
                    rollback.state = RollbackState::RolledBack;
                }
            },
        )
    }

    fn forge_row(&self, sabotage: FlowSabotage, shard: usize) -> Option<Batch> {
        let (id, place, row) = match sabotage {
            FlowSabotage::ReviveTask => {
                let (id, place, row) = self.row_of(shard, |_, _, row| row.state == TaskState::Succeeded)?;
                (id, place, TaskRecord { state: TaskState::Running, ended_at: None, ..row })
            }
            FlowSabotage::ChangeTaskResult => {
                let (id, place, row) = self.row_of(shard, |_, _, row| row.state == TaskState::Succeeded)?;
                (id, place, TaskRecord { result: Some(Json::of(&"forged")), reason: None, began_at: Millis(1), ..row })
            }
            FlowSabotage::EndDelayEarly => {
                let (id, place, row) = self.row_of(shard, |_, _, row| row.state == TaskState::Sleeping)?;
                let early = row.due.map(|due| Millis(due.0 - 1));
                (id, place, TaskRecord { state: TaskState::Succeeded, ended_at: early, due: None, ..row })
            }
            FlowSabotage::UndoInOrder => {
                let (id, place, row) = self.row_of(shard, |flow, _, row| {
                    let behind = |other: &TaskRecord| other.order > row.order && other.compensation.is_none();
                    row.order > 0 && row.compensation.is_none() && flow.rows.values().any(behind)
                })?;
                let undo = Compensation { state: CompensationState::Done, job: None, at: Millis(1) };
                (id, place, TaskRecord { compensation: Some(Box::new(undo)), ..row })
            }
            FlowSabotage::BeginEarly => {
                let early = |flow: &KnownFlow| -> Option<u32> {
                    let waits = |task: u32| !flow.rows.contains_key(&Place::of(task));
                    let tasks = flow.plan.tasks.iter().enumerate().map(|(number, task)| (number as u32, task));
                    let mut tasks =
                        tasks.filter(|(number, task)| waits(*number) && task.needs.iter().any(|need| waits(*need)));
                    tasks.next().map(|(number, _)| number)
                };
                let flow =
                    self.flow_of(shard, |flow| flow.record.state == WorkflowState::Running && early(flow).is_some())?;
                let row = TaskRecord::new(TaskState::Running, Millis(1));
                (flow.record.id, Place::of(early(flow)?), row)
            }
            FlowSabotage::CrowdItems => return self.crowd_items(shard),
            FlowSabotage::Lose
            | FlowSabotage::Revive
            | FlowSabotage::EndEarly
            | FlowSabotage::ReachEpochEarly
            | FlowSabotage::MiscountTasks
            | FlowSabotage::MiscountJobs
            | FlowSabotage::MiscountRollback
            | FlowSabotage::SayUndone
            | FlowSabotage::StartSlotTwice
            | FlowSabotage::SkipSlot => return None,
        };
        made(|batch| put_row(id, place, &row, batch))
    }

    /// All items of a list at once, where only some may be.
    fn crowd_items(&self, shard: usize) -> Option<Batch> {
        let (id, place, row) = self.row_of(shard, |flow, place, row| {
            let most = flow.plan.tasks[place.task as usize].for_each.as_ref().and_then(|each| each.concurrency);
            row.state == TaskState::Running && row.items.zip(most).is_some_and(|(items, most)| items > most)
        })?;
        let running = TaskRecord::new(TaskState::Running, Millis(1));
        made(|batch| {
            for item in 0..row.items.unwrap_or_default() {
                put_row(id, Place::item(place.task, item), &running, batch);
            }
        })
    }

    fn start_slot_twice(&self, shard: usize) -> Option<Batch> {
        let started = |flow: &KnownFlow| flow.record.schedule.is_some_and(|from| from.slot.0.is_multiple_of(60_000));
        let flow = self.flow_of(shard, started)?;
        let spec = self.store.get(self.shard_id(shard), Keyspace::WorkflowSpecs, &flow.record.id.key()).ok()??;
        let again = Workflow {
            id: WorkflowId(flow.record.id.0 + 1),
            state: WorkflowState::Running,
            run: 1,
            tasks: Tally::waiting(flow.plan.tasks.len() as u32),
            items: Tally::default(),
            totals: Totals::default(),
            epoch: 0,
            rollback: None,
            notes: Vec::new(),
            ..flow.record.clone()
        };
        made(|batch| {
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
        let known = self.ledger.flows.schedules.values().filter(|known| !known.removed && all(&known.record));
        let mut own = known.filter(|known| self.plan.shards.owner(known.record.id.slot()) == id);
        let mut schedule = own.next()?.record.clone();
        schedule.last_slot = schedule.last_slot + Millis(60_000);
        made(|batch| {
            batch.put_with(Keyspace::Schedules, &schedule.id.key(), |buffer| codec::encode_into(&schedule, buffer));
        })
    }
}

fn put(keyspace: Keyspace, record: &Workflow, batch: &mut Batch) {
    batch.put_with(keyspace, &record.id.key(), |buffer| codec::encode_into(record, buffer));
}

fn put_row(id: WorkflowId, place: Place, row: &TaskRecord, batch: &mut Batch) {
    batch.put_with(Keyspace::Tasks, &key::task(id, place), |buffer| codec::encode_into(row, buffer));
}
