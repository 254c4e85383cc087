//! Starting workflows: from outside, by a schedule, or as part of another.

use std::sync::Arc;

use model::batch::Keyspace;
use model::codec;
use model::id::{QueueId, WorkflowId};
use model::json::Json;
use model::key::{KeyEntry, Made};
use model::limits;
use model::reason::{Reason, ReasonCode};
use model::spec::{Digest, KeyHash};
use model::workflow::{
    FromSchedule, Note, NoteKind, Place, Tally, TaskState, Totals, Workflow, WorkflowSpec, WorkflowState,
};
use serde_json::Value;
use workflow::Plan;

use super::flow::Flow;
use super::scope::value_of;
use super::settle::End;
use super::work::Did;
use crate::input::{Actor, Answer, NewWorkflow, Refusal, RequestId};
use crate::keys::KeyWaiter;
use crate::shard::Shard;
use crate::step::Step;

/// Where a new workflow comes from.
pub(super) struct Birth {
    pub queue: QueueId,
    pub tenant: String,
    pub submitter: Actor,
    pub labels: std::collections::BTreeMap<String, String>,
    pub parent: Option<(WorkflowId, Place)>,
    pub schedule: Option<FromSchedule>,
    pub depth: u32,
    pub deadline: Option<model::time::Millis>,
}

impl Shard {
    pub(crate) fn start_workflow(&mut self, request: RequestId, new: Box<NewWorkflow>, step: &mut Step) {
        match new.key {
            None => {
                let answer = self.start_new(*new, step);
                step.answer(request, answer);
            }
            Some((key, digest)) => match self.known_key(key) {
                Some(entry) => {
                    let answer = self.recall_workflow(entry, digest);
                    step.answer(request, answer);
                }
                None => self.ask_key(key, KeyWaiter::Workflow { request, workflow: new }),
            },
        }
    }

    /// The store has told what the key of a start led to. Says what it stands for from now on.
    pub(crate) fn start_keyed_workflow(
        &mut self,
        request: RequestId,
        new: NewWorkflow,
        known: Option<KeyEntry>,
        step: &mut Step,
    ) -> Option<KeyEntry> {
        let Some((key, digest)) = new.key else { return known };
        if let Some(entry) = known {
            let answer = self.recall_workflow(entry, digest);
            step.answer(request, answer);
            return known;
        }
        let answer = self.start_new(new, step);
        let made = match &answer {
            Answer::Workflow(record) => Some(self.note_flow_key(key, digest, record.id, step)),
            _ => None,
        };
        step.answer(request, answer);
        made
    }

    fn note_flow_key(&mut self, key: KeyHash, digest: Digest, id: WorkflowId, step: &mut Step) -> KeyEntry {
        self.note_key(key, digest, Made::Workflow { id }, step)
    }

    fn recall_workflow(&mut self, entry: KeyEntry, digest: Digest) -> Answer {
        match entry.made {
            Made::Workflow { id } if entry.digest == digest => {
                self.stats.deduplicated += 1;
                Answer::WorkflowExists(id)
            }
            Made::Workflow { .. } | Made::Job { .. } | Made::Queue { .. } | Made::Schedule { .. } => {
                Answer::Refused(Refusal::KeyConflict)
            }
        }
    }

    fn start_new(&mut self, new: NewWorkflow, step: &mut Step) -> Answer {
        match self.try_start(new, step) {
            Ok(id) => match self.flows.map.get(&id) {
                Some(flow) => Answer::Workflow(Box::new(flow.record.clone())),
                None => Answer::Refused(Refusal::UnknownWorkflow(id)),
            },
            Err(refusal) => {
                self.stats.refused += 1;
                Answer::Refused(refusal)
            }
        }
    }

    fn try_start(&mut self, new: NewWorkflow, step: &mut Step) -> Result<WorkflowId, Refusal> {
        self.room_for_flow()?;
        let queue = match new.queue {
            Some(reference) => self.find_open_queue(reference, &new.tenant)?,
            None => self.implicit_queue(&new.tenant, step)?,
        };
        if new.key.is_some() {
            self.count_key(&new.tenant, step)?;
        }
        let birth = Birth {
            queue,
            tenant: new.tenant,
            submitter: new.submitter,
            labels: new.labels,
            parent: None,
            schedule: None,
            depth: 0,
            deadline: None,
        };
        let value = value_of(&new.inputs);
        Ok(self.add_flow(birth, new.plan, new.inputs, value, step))
    }

    pub(super) fn room_for_flow(&self) -> Result<(), Refusal> {
        if self.flows.map.len() >= self.config.workflows_max || self.jobs.len() >= self.config.live_jobs_max {
            return Err(Refusal::Full { retry_after: self.config.retry_after });
        }
        Ok(())
    }

    /// Makes a workflow; its first tasks begin with what is worked off next.
    pub(super) fn add_flow(
        &mut self,
        birth: Birth,
        plan: Arc<Plan>,
        inputs: Json,
        value: Value,
        step: &mut Step,
    ) -> WorkflowId {
        let now = self.now;
        let id = WorkflowId(self.next_id(birth.queue.slot()));
        let own_deadline = plan.timeout.map(|timeout| now + timeout);
        let deadline = [own_deadline, birth.deadline].into_iter().flatten().min();
        let started = Note { at: now, kind: NoteKind::Started, by: birth.submitter.clone(), place: None, text: None };
        let record = Workflow {
            id,
            queue: birth.queue,
            name: plan.name.to_string(),
            tenant: birth.tenant,
            state: WorkflowState::Running,
            created_at: now,
            since: now,
            run: 1,
            submitter: birth.submitter,
            parent: birth.parent,
            schedule: birth.schedule,
            tasks: Tally::waiting(plan.tasks.len() as u32),
            items: Tally::default(),
            totals: Totals::default(),
            last_order: 0,
            epoch: 0,
            reason: None,
            after_stop: None,
            rollback: None,
            notes: vec![started],
            notes_dropped: 0,
            result: None,
            deadline,
            labels: birth.labels,
            next_signal: 0,
            depth: birth.depth,
            removing: false,
        };
        let spec = WorkflowSpec { digest: plan.digest, definition: plan.source.clone(), inputs };
        step.batch.put_with(Keyspace::WorkflowSpecs, &id.key(), |buffer| codec::encode_into(&spec, buffer));
        if let Some(deadline) = deadline {
            self.flows.arm_deadline(deadline, id);
        }
        self.flows.map.insert(id, Box::new(Flow::new(record, plan, value)));
        self.hold_queue(id);
        if let Some((parent, _)) = birth.parent
            && let Some(parent) = self.flows.map.get_mut(&parent)
        {
            parent.children.insert(id);
        }
        self.flows.touch(id);
        self.dirty_bytes += super::flush::FLOW_BYTES;
        self.stats.flows.started += 1;
        self.tell_flow(id, step);
        self.kick(id, step);
        id
    }

    /// Looks at every task that has not begun: whose time has come, begins; who cannot begin any more, ends.
    pub(super) fn kick(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id) else { return };
        let weighable = |(_, slot): &(usize, &super::flow::Slot)| slot.state == TaskState::Waiting;
        let waiting: Vec<u32> =
            flow.slots.iter().enumerate().filter(weighable).map(|(number, _)| number as u32).collect();
        // A new workflow's tasks with needs have nothing to look at yet.
        let fresh = flow.record.tasks.total() as usize == waiting.len();
        for task in waiting {
            let open = self.flows.map.get(&id).map_or(0, |flow| flow.slots[task as usize].open_needs);
            if !fresh || open == 0 {
                self.weigh(id, task);
            }
        }
        self.reach_epochs(id);
        self.check_settled(id, step);
    }

    /// Begins a sub-workflow.
    pub(super) fn begin_child(
        &mut self,
        id: WorkflowId,
        place: Place,
        plan: Arc<Plan>,
        inputs: Value,
        step: &mut Step,
    ) -> Did {
        let now = self.now;
        let Some(flow) = self.flows.map.get(&id) else { return Did::It };
        // What waits for its parts must not keep them from beginning: those have as much room again. When that is used
        // up, waiting would be without end.
        if self.flows.map.len() >= self.config.workflows_max.saturating_mul(2) {
            let reason =
                Reason::with(ReasonCode::TooManyWorkflows, "no room for another sub-workflow: start fewer at once");
            self.settle(id, place, End::bare(TaskState::Failed, reason), step);
            return Did::It;
        }
        if flow.record.depth + 1 >= limits::WORKFLOW_DEPTH_MAX {
            let message = format!("workflows are nested at most {} deep", limits::WORKFLOW_DEPTH_MAX);
            let reason = Reason::with(ReasonCode::TemplateError, message);
            self.settle(id, place, End::bare(TaskState::Failed, reason), step);
            return Did::It;
        }
        let birth = Birth {
            queue: flow.record.queue,
            tenant: flow.record.tenant.clone(),
            submitter: flow.record.submitter.clone(),
            labels: flow.record.labels.clone(),
            parent: Some((id, place)),
            schedule: None,
            depth: flow.record.depth + 1,
            deadline: flow.task(place).timeout.map(|timeout| now + timeout),
        };
        let json = Json::of(&inputs);
        let child = self.add_flow(birth, plan, json, inputs, step);
        if let Some(flow) = self.flows.touch(id)
            && let Some(row) = flow.enter(place, TaskState::Running, now)
        {
            row.child = Some(child);
        }
        self.dirty_bytes += super::flush::ROW_BYTES;
        self.tell_task(id, place, step);
        Did::It
    }

    /// A sub-workflow has ended, or has been undone.
    pub(super) fn child_changed(&mut self, child: WorkflowId, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&child) else { return };
        let record = &flow.record;
        let Some((parent, place)) = record.parent else { return };
        let (state, reason, result) = (record.state, record.reason.clone(), record.result.clone());
        let (rollback, totals) = (record.rollback.clone(), record.totals);
        let Some(above) = self.flows.touch(parent) else { return self.file(child) };
        if above.undoing == Some(place) {
            let done = rollback.is_none_or(|rollback| rollback.failed == 0);
            return self.undone(parent, place, done, step);
        }
        if above.state(place) != TaskState::Running {
            return;
        }
        above.record.totals.cpu = above.record.totals.cpu + totals.cpu;
        above.record.totals.memory_peak_bytes = above.record.totals.memory_peak_bytes.max(totals.memory_peak_bytes);
        above.record.totals.jobs += totals.jobs;
        above.record.totals.attempts += totals.attempts;
        let end = match state {
            WorkflowState::Succeeded => End { result, ..End::of(TaskState::Succeeded) },
            WorkflowState::Cancelled => {
                End::bare(TaskState::Cancelled, reason.unwrap_or_else(|| Reason::new(ReasonCode::WorkflowStopped)))
            }
            WorkflowState::Failed
            | WorkflowState::Running
            | WorkflowState::Paused
            | WorkflowState::Stopping
            | WorkflowState::RollingBack => {
                End::bare(TaskState::Failed, reason.unwrap_or_else(|| Reason::new(ReasonCode::TaskFailed)))
            }
        };
        self.settle(parent, place, end, step);
    }
}
