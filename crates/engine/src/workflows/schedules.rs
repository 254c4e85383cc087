//! Schedules: start workflows by cron expressions.
//!
//! The newest handled slot is committed together with the workflow it started: no slot starts twice, and none is lost
//! unless the catch-up policy drops it.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::audit::Action;
use model::batch::Keyspace;
use model::change::Change;
use model::codec;
use model::id::{ScheduleId, WorkflowId};
use model::key;
use model::queue::QueueRef;
use model::reason::{Reason, ReasonCode};
use model::time::Millis;
use model::workflow::{AfterStop, CatchUp, FromSchedule, NoteKind, Overlap, Schedule, ScheduleSpec};
use workflow::Plan;
use workflow::cron::Cron;

use super::scope::value_of;
use super::start::WorkflowSource;
use crate::anomaly::Anomaly;
use crate::input::{Actor, Answer, NewSchedule, Refusal, RequestId};
use crate::names;
use crate::shard::Shard;
use crate::step::Step;

/// A slot this late counts as missed; the catch-up policy applies.
const LATE_AFTER: Millis = Millis::from_secs(60);
/// Delay before a refused start is retried.
const START_RETRY_DELAY: Millis = Millis::from_secs(1);

/// A schedule's record with its compiled plan and cron expression.
#[derive(Debug)]
pub(super) struct LiveSchedule {
    pub schedule: Schedule,
    plan: Arc<Plan>,
    cron: Arc<Cron>,
    /// Time of its timer.
    armed: Option<Millis>,
    /// Its workflows that have not ended.
    live: BTreeSet<WorkflowId>,
}

/// Slots that are due, after the catch-up policy.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    /// Slots to start, oldest first.
    start: Vec<Millis>,
    skipped: u64,
    /// Slots up to this one are handled.
    through: Millis,
}

/// Chooses the due slots to start.
fn choose_slots(slots: &[(Millis, bool)], catch_up: CatchUp) -> Option<Due> {
    let through = slots.last()?.0;
    let on_time = slots.iter().filter(|(_, late)| !late).map(|(slot, _)| *slot);
    let start: Vec<Millis> = match catch_up {
        CatchUp::All => slots.iter().map(|(slot, _)| *slot).collect(),
        CatchUp::Skip => on_time.collect(),
        CatchUp::Once => {
            let on_time: Vec<Millis> = on_time.collect();
            if on_time.is_empty() { vec![through] } else { on_time }
        }
    };
    Some(Due { skipped: (slots.len() - start.len()) as u64, start, through })
}

impl Shard {
    /// Creates a schedule and answers the request.
    pub(crate) fn create_schedule(&mut self, request: RequestId, new: NewSchedule, step: &mut Step) {
        let answer = match self.try_create_schedule(new, step) {
            Ok(schedule) => Answer::Schedule(Box::new(schedule)),
            Err(refusal) => Answer::Refused(refusal),
        };
        step.answer(request, answer);
    }

    fn try_create_schedule(&mut self, new: NewSchedule, step: &mut Step) -> Result<Schedule, Refusal> {
        let known = self.workflows.schedules.values();
        if known.into_iter().any(|entry| entry.schedule.name == new.name && entry.schedule.tenant == new.tenant) {
            return Err(Refusal::ScheduleNameTaken { name: new.name });
        }
        if self.workflows.schedules.len() >= self.config.schedules_max {
            return Err(Refusal::TooManySchedules { max: self.config.schedules_max });
        }
        let queue = match new.queue {
            Some(reference) => Some(self.find_open_queue(reference, &new.tenant)?),
            None => None,
        };
        let id = ScheduleId(self.ids.next(self.now, self.ids.home()));
        self.use_definition(new.plan.digest, &new.plan.source, id.0, step);
        let schedule = Schedule {
            id,
            name: new.name,
            tenant: new.tenant,
            queue,
            spec: ScheduleSpec { definition: Vec::new(), ..new.spec },
            created_at: self.now,
            submitter: new.submitter.clone(),
            paused: new.paused,
            last_slot: self.now,
            last_workflow: None,
            started: 0,
            skipped: 0,
            waiting_slot: None,
            trouble: None,
            workflow: Some(new.plan.name.to_string()),
        };
        let (plan, cron) = (new.plan, new.cron);
        let entry = LiveSchedule { schedule: schedule.clone(), plan, cron, armed: None, live: BTreeSet::new() };
        self.workflows.schedules.insert(id, entry);
        names::add_schedule(&schedule.name, id, &mut step.batch);
        self.audit_schedule(Action::ScheduleCreated, &schedule.name, &new.submitter, step);
        self.touch_schedule(id, step);
        self.arm_schedule(id);
        Ok(schedule)
    }

    /// Restores a schedule. Call before the shard is resumed.
    pub fn restore_schedule(&mut self, schedule: Schedule, plan: Arc<Plan>, cron: Arc<Cron>) {
        self.reserve_ids_up_to(schedule.id.0);
        if schedule.spec.definition.is_empty() {
            self.workflows.definitions.join(schedule.spec.digest);
        }
        let entry = LiveSchedule { plan, cron, armed: None, live: BTreeSet::new(), schedule };
        self.workflows.schedules.insert(entry.schedule.id, entry);
    }

    /// Sets the timers of restored schedules.
    pub(crate) fn resume_schedules(&mut self) {
        for workflow in self.workflows.map.values().filter(|workflow| !workflow.record.state.is_terminal()) {
            if let Some(from) = workflow.record.schedule
                && let Some(entry) = self.workflows.schedules.get_mut(&from.id)
            {
                entry.live.insert(workflow.record.id);
            }
        }
        let ids: Vec<ScheduleId> = self.workflows.schedules.keys().copied().collect();
        for id in ids {
            self.arm_schedule(id);
            let waits = |entry: &LiveSchedule| {
                !entry.schedule.paused && entry.schedule.waiting_slot.is_some() && entry.live.is_empty()
            };
            if self.workflows.schedules.get(&id).is_some_and(waits) {
                self.set_schedule_timer(id, Some(self.now));
            }
        }
    }

    /// Marks a schedule as changed and announces it.
    fn touch_schedule(&mut self, id: ScheduleId, step: &mut Step) {
        if let Some(entry) = self.workflows.schedules.get(&id) {
            step.announce(&Change::Schedule { id, paused: entry.schedule.paused, at: self.now });
            self.workflows.dirty_schedules.insert(id);
        }
    }

    /// Writes the changed schedules.
    pub(super) fn flush_schedules(&mut self, step: &mut Step) {
        for id in std::mem::take(&mut self.workflows.dirty_schedules) {
            if let Some(entry) = self.workflows.schedules.get(&id) {
                let schedule = &entry.schedule;
                step.batch.put_with(Keyspace::Schedules, &id.key(), |buffer| codec::encode_into(schedule, buffer));
            }
        }
    }

    /// Jitter of a slot's start.
    fn jitter_of(&self, entry: &LiveSchedule, slot: Millis) -> Millis {
        // Never beyond the next slot, so that slots keep their order.
        let gap = entry.cron.next_after(slot).map_or(Millis(u64::MAX), |next| next - slot);
        let most = entry.schedule.spec.jitter.min(gap);
        if most.0 == 0 {
            return Millis(0);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&entry.schedule.id.key());
        hasher.update(&slot.0.to_be_bytes());
        let mut number = [0; 8];
        number.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Millis(u64::from_be_bytes(number) % most.0)
    }

    /// Sets the timer of a schedule to its next slot.
    fn arm_schedule(&mut self, id: ScheduleId) {
        let Some(entry) = self.workflows.schedules.get(&id) else {
            return self.anomalies.note(Anomaly::MissingSchedule(id), "arm schedule");
        };
        let wanted = (!entry.schedule.paused).then(|| entry.cron.next_after(entry.schedule.last_slot)).flatten();
        let wanted = wanted.map(|slot| slot + self.jitter_of(entry, slot));
        self.set_schedule_timer(id, wanted);
    }

    /// Sets or clears the timer of a schedule.
    fn set_schedule_timer(&mut self, id: ScheduleId, at: Option<Millis>) {
        let Some(entry) = self.workflows.schedules.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingSchedule(id), "set schedule timer");
        };
        let before = std::mem::replace(&mut entry.armed, at);
        if let Some(before) = before {
            self.workflows.disarm_schedule(before, id);
        }
        if let Some(at) = at {
            self.workflows.arm_schedule(at, id);
        }
    }

    /// Handles a schedule's timer: a slot is due, or a start is retried.
    pub(super) fn schedule_due(&mut self, id: ScheduleId, step: &mut Step) {
        let Some(entry) = self.workflows.schedules.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingSchedule(id), "schedule due");
        };
        entry.armed = None;
        if entry.schedule.paused {
            return;
        }
        if entry.live.is_empty()
            && let Some(slot) = entry.schedule.waiting_slot
        {
            if slot > self.now {
                // The shard restarted with an earlier clock.
                return self.set_schedule_timer(id, Some(slot));
            }
            if let Err(refusal) = self.start_slot(id, slot, step) {
                return self.retry_slot(id, &refusal, step);
            }
            if let Some(entry) = self.workflows.schedules.get_mut(&id) {
                entry.schedule.waiting_slot = None;
            }
        }
        let Some(due) = self.due_slots(id) else { return self.arm_schedule(id) };
        let mut through = due.through;
        let mut step_is_full = false;
        for slot in due.start {
            if self.is_full(step) {
                // The next step starts the rest.
                step_is_full = true;
                through = Millis(slot.0.saturating_sub(1));
                break;
            }
            match self.handle_slot(id, slot, step) {
                Ok(true) => {}
                // With catch-up `all` the slot waits for the previous workflow instead of being skipped.
                Ok(false) => {
                    through = Millis(slot.0.saturating_sub(1));
                    break;
                }
                Err(refusal) => {
                    let Some(entry) = self.workflows.schedules.get_mut(&id) else {
                        return self.anomalies.note(Anomaly::MissingSchedule(id), "schedule due");
                    };
                    entry.schedule.last_slot = Millis(slot.0.saturating_sub(1)).max(entry.schedule.last_slot);
                    return self.retry_slot(id, &refusal, step);
                }
            }
        }
        let Some(entry) = self.workflows.schedules.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingSchedule(id), "schedule due");
        };
        let waits = through < due.through;
        entry.schedule.last_slot = entry.schedule.last_slot.max(through);
        let skipped = if waits { 0 } else { due.skipped };
        entry.schedule.skipped += skipped;
        self.stats.workflows.schedules_skipped += skipped;
        self.touch_schedule(id, step);
        if step_is_full {
            self.set_schedule_timer(id, Some(self.now));
        } else if waits {
            // The end of the previous workflow sets the timer again.
            self.set_schedule_timer(id, None);
        } else {
            self.arm_schedule(id);
        }
    }

    /// Records a refused start and sets the timer for a retry.
    fn retry_slot(&mut self, id: ScheduleId, refusal: &Refusal, step: &mut Step) {
        if let Some(entry) = self.workflows.schedules.get_mut(&id) {
            entry.schedule.trouble = Some(refusal.to_string());
        }
        self.touch_schedule(id, step);
        self.set_schedule_timer(id, Some(self.now + START_RETRY_DELAY));
    }

    /// The slots due by now, after the catch-up policy.
    fn due_slots(&self, id: ScheduleId) -> Option<Due> {
        let entry = self.workflows.schedules.get(&id)?;
        let (missed, more) =
            workflow::cron::due(&entry.cron, entry.schedule.last_slot, self.now, self.config.catch_up_max);
        let mut slots = Vec::new();
        for slot in missed {
            let at = slot + self.jitter_of(entry, slot);
            if at > self.now {
                break;
            }
            slots.push((slot, at + LATE_AFTER < self.now));
        }
        let mut due = choose_slots(&slots, entry.schedule.spec.catch_up)?;
        if more && entry.schedule.spec.catch_up != CatchUp::All {
            // Too many missed slots for one batch: skip to the newest missed one. The rest is handled as usual.
            if let Some(newest) = entry.cron.latest(due.through, self.now - LATE_AFTER) {
                due.start.clear();
                due.through = newest - Millis(1);
            }
        }
        Some(due)
    }

    /// Starts or skips a slot, by the overlap policy. False: it waits for the end of the previous workflow.
    fn handle_slot(&mut self, id: ScheduleId, slot: Millis, step: &mut Step) -> Result<bool, Refusal> {
        let Some(entry) = self.workflows.schedules.get_mut(&id) else {
            self.anomalies.note(Anomaly::MissingSchedule(id), "handle slot");
            return Ok(true);
        };
        let spec = &entry.schedule.spec;
        if entry.live.is_empty() || spec.overlap == Overlap::Allow {
            self.start_slot(id, slot, step)?;
            return Ok(true);
        }
        match spec.overlap {
            Overlap::Forbid if spec.catch_up == CatchUp::All => Ok(false),
            Overlap::Forbid | Overlap::Allow => {
                entry.schedule.skipped += 1;
                self.stats.workflows.schedules_skipped += 1;
                Ok(true)
            }
            Overlap::Replace => {
                if entry.schedule.waiting_slot.replace(slot).is_some() {
                    entry.schedule.skipped += 1;
                    self.stats.workflows.schedules_skipped += 1;
                }
                let live: Vec<WorkflowId> = entry.live.iter().copied().collect();
                for before in live {
                    self.note_workflow(before, NoteKind::CancelRequested, None, None, Some("replaced".to_owned()));
                    self.stop(before, AfterStop::Cancelled, Reason::new(ReasonCode::ReplacedBySchedule), step);
                }
                Ok(true)
            }
        }
    }

    /// Starts the workflow of a slot.
    fn start_slot(&mut self, id: ScheduleId, slot: Millis, step: &mut Step) -> Result<WorkflowId, Refusal> {
        self.room_for_workflow()?;
        let Some(entry) = self.workflows.schedules.get(&id) else { return Err(Refusal::UnknownSchedule(id)) };
        let schedule = &entry.schedule;
        let (tenant, submitter, plan) = (schedule.tenant.clone(), schedule.submitter.clone(), entry.plan.clone());
        let inputs = schedule.spec.inputs.clone();
        let queue = match schedule.queue {
            // A closed queue accepts no jobs; the slot runs in the tenant's implicit queue instead.
            Some(queue) => match self.find_open_queue(QueueRef::Id(queue), &tenant) {
                Ok(queue) => queue,
                Err(_) => self.implicit_queue(&tenant, step)?,
            },
            None => self.implicit_queue(&tenant, step)?,
        };
        let source = WorkflowSource {
            queue,
            tenant,
            submitter,
            labels: Default::default(),
            parent: None,
            schedule: Some(FromSchedule { id, slot }),
            depth: 0,
            deadline: None,
        };
        let value = value_of(&inputs);
        let workflow = self.add_workflow(source, plan, inputs, value, step);
        self.stats.workflows.schedules_fired += 1;
        if let Some(entry) = self.workflows.schedules.get_mut(&id) {
            entry.schedule.last_workflow = Some(workflow);
            entry.schedule.started += 1;
            entry.schedule.trouble = None;
            let live = self.workflows.map.get(&workflow).is_some_and(|workflow| !workflow.record.state.is_terminal());
            if live {
                entry.live.insert(workflow);
            }
        }
        self.touch_schedule(id, step);
        Ok(workflow)
    }

    /// Notes the end of a scheduled workflow; a slot that waited for it is started.
    pub(super) fn schedule_workflow_ended(&mut self, workflow: WorkflowId) {
        let Some(from) = self.workflows.map.get(&workflow).and_then(|workflow| workflow.record.schedule) else {
            return;
        };
        // The schedule may have been removed while its workflow ran.
        let Some(entry) = self.workflows.schedules.get_mut(&from.id) else { return };
        if !entry.live.remove(&workflow) || !entry.live.is_empty() {
            return;
        }
        if !entry.schedule.paused && (entry.schedule.waiting_slot.is_some() || entry.armed.is_none()) {
            self.set_schedule_timer(from.id, Some(self.now));
        }
    }

    /// Pauses or resumes a schedule.
    pub(crate) fn pause_schedule(
        &mut self,
        request: RequestId,
        id: ScheduleId,
        paused: bool,
        by: &Actor,
        step: &mut Step,
    ) {
        let now = self.now;
        let Some(entry) = self.workflows.schedules.get_mut(&id) else {
            return step.answer(request, Answer::Refused(Refusal::UnknownSchedule(id)));
        };
        if entry.schedule.paused != paused {
            entry.schedule.paused = paused;
            // Slots that fall into the pause are skipped.
            entry.schedule.skipped += u64::from(entry.schedule.waiting_slot.take().is_some());
            entry.schedule.last_slot = entry.schedule.last_slot.max(now);
            let name = entry.schedule.name.clone();
            let action = if paused { Action::SchedulePaused } else { Action::ScheduleResumed };
            self.audit_schedule(action, &name, by, step);
            self.touch_schedule(id, step);
            self.arm_schedule(id);
        }
        if let Some(entry) = self.workflows.schedules.get(&id) {
            step.answer(request, Answer::Schedule(Box::new(entry.schedule.clone())));
        }
    }

    /// Removes a schedule. Its live workflows continue.
    pub(crate) fn remove_schedule(&mut self, request: RequestId, id: ScheduleId, by: &Actor, step: &mut Step) {
        if !self.workflows.schedules.contains_key(&id) {
            return step.answer(request, Answer::Refused(Refusal::UnknownSchedule(id)));
        }
        self.set_schedule_timer(id, None);
        let Some(entry) = self.workflows.schedules.remove(&id) else {
            return self.anomalies.note(Anomaly::MissingSchedule(id), "remove a schedule");
        };
        self.workflows.dirty_schedules.remove(&id);
        step.batch.delete(Keyspace::Schedules, &id.key());
        names::remove_schedule(&entry.schedule.name, id, &mut step.batch);
        if entry.schedule.spec.definition.is_empty() {
            let digest = entry.schedule.spec.digest;
            self.workflows.definitions.leave(digest);
            step.batch.delete(Keyspace::ByDefinition, &key::by_definition(digest, id.0));
        }
        step.batch.put(Keyspace::Meta, key::META_LAST_ID, &self.ids.last().to_be_bytes());
        step.announce(&Change::ScheduleRemoved { id, at: self.now });
        self.audit_schedule(Action::ScheduleRemoved, &entry.schedule.name, by, step);
        step.answer(request, Answer::ScheduleRemoved);
    }

    /// Starts the schedule's workflow immediately, regardless of the overlap policy.
    pub(crate) fn trigger_schedule(&mut self, request: RequestId, id: ScheduleId, by: &Actor, step: &mut Step) {
        let name = self.workflows.schedules.get(&id).map(|entry| entry.schedule.name.clone());
        match (name, self.start_slot(id, self.now, step)) {
            (Some(name), Ok(workflow)) => {
                self.audit_schedule(Action::ScheduleTriggered, &name, by, step);
                self.answer_workflow(request, workflow, step);
            }
            (_, Err(refusal)) => step.answer(request, Answer::Refused(refusal)),
            (None, Ok(_)) => step.answer(request, Answer::Refused(Refusal::UnknownSchedule(id))),
        }
    }

    /// The record of a schedule.
    pub fn schedule(&self, id: ScheduleId) -> Option<&Schedule> {
        self.workflows.schedules.get(&id).map(|entry| &entry.schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(late: &[bool]) -> Vec<(Millis, bool)> {
        late.iter().enumerate().map(|(index, late)| (Millis(index as u64 + 1), *late)).collect()
    }

    #[test]
    fn the_catch_up_policy_skips_missed_slots_or_starts_one_or_all() {
        let missed = slots(&[true, true, false]);
        let start = |catch_up| choose_slots(&missed, catch_up).unwrap();
        assert_eq!(start(CatchUp::Skip).start, [Millis(3)]);
        assert_eq!(start(CatchUp::Once).start, [Millis(3)]);
        assert_eq!(start(CatchUp::All).start, [Millis(1), Millis(2), Millis(3)]);
        assert_eq!(start(CatchUp::Skip).skipped, 2);
        let only_missed = slots(&[true, true]);
        assert_eq!(choose_slots(&only_missed, CatchUp::Skip).unwrap().start, []);
        assert_eq!(choose_slots(&only_missed, CatchUp::Once).unwrap().start, [Millis(2)]);
        assert_eq!(choose_slots(&[], CatchUp::All), None);
    }
}
