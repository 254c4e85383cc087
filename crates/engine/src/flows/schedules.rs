//! Starting workflows by the clock.
//!
//! A schedule's slots are those of its cron expression. The newest slot that has had its turn is durable together with
//! the workflow that it has started: no slot is taken twice, and none is lost that its catch-up policy does not drop.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::audit::Action;
use model::batch::Keyspace;
use model::change::Change;
use model::codec;
use model::id::{ScheduleId, WorkflowId};
use model::queue::QueueRef;
use model::reason::{Reason, ReasonCode};
use model::time::Millis;
use model::workflow::{AfterStop, CatchUp, FromSchedule, NoteKind, Overlap, Schedule};
use workflow::Plan;
use workflow::cron::Cron;

use super::scope::value_of;
use super::start::Birth;
use crate::input::{Actor, Answer, NewSchedule, Refusal, RequestId};
use crate::shard::Shard;
use crate::step::Step;

/// A slot that is this much late has been missed: it is for the catch-up policy to say what becomes of it.
const LATE_AFTER: Millis = Millis::from_secs(60);
/// After a start that was refused the next try comes this much later.
const TRY_AGAIN: Millis = Millis::from_secs(1);

/// A schedule with what is derived from it.
#[derive(Debug)]
pub(super) struct Entry {
    pub schedule: Schedule,
    plan: Arc<Plan>,
    cron: Arc<Cron>,
    armed: Option<Millis>,
    /// Workflows of it that have not ended.
    live: BTreeSet<WorkflowId>,
}

/// What the slots that are due come to.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    /// To be started, oldest first.
    start: Vec<Millis>,
    skipped: u64,
    /// Slots up to this one have had their turn.
    through: Millis,
}

/// Which of the slots that are due are started.
fn choose(slots: &[(Millis, bool)], catch_up: CatchUp) -> Option<Due> {
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
    pub(crate) fn create_schedule(&mut self, request: RequestId, new: NewSchedule, step: &mut Step) {
        let answer = match self.try_create_schedule(new, step) {
            Ok(schedule) => Answer::Schedule(Box::new(schedule)),
            Err(refusal) => Answer::Refused(refusal),
        };
        step.answer(request, answer);
    }

    fn try_create_schedule(&mut self, new: NewSchedule, step: &mut Step) -> Result<Schedule, Refusal> {
        let known = self.flows.schedules.values();
        if known.into_iter().any(|entry| entry.schedule.name == new.name && entry.schedule.tenant == new.tenant) {
            return Err(Refusal::ScheduleNameTaken { name: new.name });
        }
        if self.flows.schedules.len() >= self.config.schedules_max {
            return Err(Refusal::TooManySchedules { max: self.config.schedules_max });
        }
        let queue = match new.queue {
            Some(reference) => Some(self.find_open_queue(reference, &new.tenant)?),
            None => None,
        };
        let id = ScheduleId(self.next_id(self.home));
        let schedule = Schedule {
            id,
            name: new.name,
            tenant: new.tenant,
            queue,
            spec: new.spec,
            created_at: self.now,
            submitter: new.submitter.clone(),
            paused: new.paused,
            last_slot: self.now,
            last_workflow: None,
            started: 0,
            skipped: 0,
            waiting_slot: None,
            trouble: None,
        };
        let (plan, cron) = (new.plan, new.cron);
        let entry = Entry { schedule: schedule.clone(), plan, cron, armed: None, live: BTreeSet::new() };
        self.flows.schedules.insert(id, entry);
        self.note_schedule_act(Action::ScheduleCreated, &schedule.name, &new.submitter, step);
        self.touch_schedule(id, step);
        self.arm_schedule(id);
        Ok(schedule)
    }

    /// Puts back a schedule. Before the shard is resumed.
    pub fn restore_schedule(&mut self, schedule: Schedule, plan: Arc<Plan>, cron: Arc<Cron>) {
        self.see_id(schedule.id.0);
        let entry = Entry { plan, cron, armed: None, live: BTreeSet::new(), schedule };
        self.flows.schedules.insert(entry.schedule.id, entry);
    }

    pub(super) fn resume_schedules(&mut self) {
        for flow in self.flows.map.values().filter(|flow| !flow.record.state.is_terminal()) {
            if let Some(from) = flow.record.schedule
                && let Some(entry) = self.flows.schedules.get_mut(&from.id)
            {
                entry.live.insert(flow.record.id);
            }
        }
        let ids: Vec<ScheduleId> = self.flows.schedules.keys().copied().collect();
        for id in ids {
            self.arm_schedule(id);
            let waits = |entry: &Entry| {
                !entry.schedule.paused && entry.schedule.waiting_slot.is_some() && entry.live.is_empty()
            };
            if self.flows.schedules.get(&id).is_some_and(waits) {
                self.set_alarm(id, Some(self.now));
            }
        }
    }

    fn touch_schedule(&mut self, id: ScheduleId, step: &mut Step) {
        if let Some(entry) = self.flows.schedules.get(&id) {
            step.tell(&Change::Schedule { id, paused: entry.schedule.paused, at: self.now });
            self.flows.dirty_schedules.insert(id);
        }
    }

    pub(super) fn flush_schedules(&mut self, step: &mut Step) {
        for id in std::mem::take(&mut self.flows.dirty_schedules) {
            if let Some(entry) = self.flows.schedules.get(&id) {
                let schedule = &entry.schedule;
                step.batch.put_with(Keyspace::Schedules, &id.key(), |buffer| codec::encode_into(schedule, buffer));
            }
        }
    }

    /// How much the start of a slot is put off.
    fn jitter_of(&self, entry: &Entry, slot: Millis) -> Millis {
        // Never beyond the next slot: they keep their order.
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
        let Some(entry) = self.flows.schedules.get(&id) else { return };
        let wanted = (!entry.schedule.paused).then(|| entry.cron.next_after(entry.schedule.last_slot)).flatten();
        let wanted = wanted.map(|slot| slot + self.jitter_of(entry, slot));
        self.set_alarm(id, wanted);
    }

    fn set_alarm(&mut self, id: ScheduleId, at: Option<Millis>) {
        let Some(entry) = self.flows.schedules.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.armed, at);
        if let Some(before) = before {
            self.flows.disarm_schedule(before, id);
        }
        if let Some(at) = at {
            self.flows.arm_schedule(at, id);
        }
    }

    /// A slot of a schedule is due, or it is time to try again.
    pub(super) fn schedule_due(&mut self, id: ScheduleId, step: &mut Step) {
        let Some(entry) = self.flows.schedules.get_mut(&id) else { return };
        entry.armed = None;
        if entry.schedule.paused {
            return;
        }
        if entry.live.is_empty()
            && let Some(slot) = entry.schedule.waiting_slot
        {
            if let Err(refusal) = self.start_slot(id, slot, step) {
                return self.try_slot_again(id, &refusal, step);
            }
            if let Some(entry) = self.flows.schedules.get_mut(&id) {
                entry.schedule.waiting_slot = None;
            }
        }
        let Some(due) = self.due_slots(id) else { return self.arm_schedule(id) };
        let mut through = due.through;
        let mut goes_on = false;
        for slot in due.start {
            if self.is_full(step) {
                // The rest comes with the next steps.
                goes_on = true;
                through = Millis(slot.0.saturating_sub(1));
                break;
            }
            match self.take_slot(id, slot, step) {
                Ok(true) => {}
                // Those that catch up on everything wait for the one before instead of leaving it out.
                Ok(false) => {
                    through = Millis(slot.0.saturating_sub(1));
                    break;
                }
                Err(refusal) => {
                    let Some(entry) = self.flows.schedules.get_mut(&id) else { return };
                    entry.schedule.last_slot = Millis(slot.0.saturating_sub(1)).max(entry.schedule.last_slot);
                    return self.try_slot_again(id, &refusal, step);
                }
            }
        }
        let Some(entry) = self.flows.schedules.get_mut(&id) else { return };
        let waits = through < due.through;
        entry.schedule.last_slot = entry.schedule.last_slot.max(through);
        let skipped = if waits { 0 } else { due.skipped };
        entry.schedule.skipped += skipped;
        self.stats.flows.schedules_skipped += skipped;
        self.touch_schedule(id, step);
        if goes_on {
            self.set_alarm(id, Some(self.now));
        } else if waits {
            // It goes on when the workflow has ended.
            self.set_alarm(id, None);
        } else {
            self.arm_schedule(id);
        }
    }

    /// A start was refused: that is said, and it is tried again in a moment.
    fn try_slot_again(&mut self, id: ScheduleId, refusal: &Refusal, step: &mut Step) {
        if let Some(entry) = self.flows.schedules.get_mut(&id) {
            entry.schedule.trouble = Some(refusal.to_string());
        }
        self.touch_schedule(id, step);
        self.set_alarm(id, Some(self.now + TRY_AGAIN));
    }

    /// The slots that are due by now, as the catch-up policy has them.
    fn due_slots(&self, id: ScheduleId) -> Option<Due> {
        let entry = self.flows.schedules.get(&id)?;
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
        let mut due = choose(&slots, entry.schedule.spec.catch_up)?;
        if more && entry.schedule.spec.catch_up != CatchUp::All {
            // Of so many those that are long past are passed over; what is left is looked at like any other.
            if let Some(newest) = entry.cron.latest(due.through, self.now - LATE_AFTER) {
                due.start.clear();
                due.through = newest - Millis(1);
            }
        }
        Some(due)
    }

    /// Gives a slot its turn. False: it waits until the workflow before it has ended.
    fn take_slot(&mut self, id: ScheduleId, slot: Millis, step: &mut Step) -> Result<bool, Refusal> {
        let Some(entry) = self.flows.schedules.get_mut(&id) else { return Ok(true) };
        let spec = &entry.schedule.spec;
        if entry.live.is_empty() || spec.overlap == Overlap::Allow {
            self.start_slot(id, slot, step)?;
            return Ok(true);
        }
        match spec.overlap {
            Overlap::Forbid if spec.catch_up == CatchUp::All => Ok(false),
            Overlap::Forbid | Overlap::Allow => {
                entry.schedule.skipped += 1;
                self.stats.flows.schedules_skipped += 1;
                Ok(true)
            }
            Overlap::Replace => {
                if entry.schedule.waiting_slot.replace(slot).is_some() {
                    entry.schedule.skipped += 1;
                    self.stats.flows.schedules_skipped += 1;
                }
                let live: Vec<WorkflowId> = entry.live.iter().copied().collect();
                for before in live {
                    self.note_flow(before, NoteKind::CancelRequested, None, None, Some("replaced".to_owned()));
                    self.stop(before, AfterStop::Cancelled, Reason::new(ReasonCode::ReplacedBySchedule), step);
                }
                Ok(true)
            }
        }
    }

    fn start_slot(&mut self, id: ScheduleId, slot: Millis, step: &mut Step) -> Result<WorkflowId, Refusal> {
        self.room_for_flow()?;
        let Some(entry) = self.flows.schedules.get(&id) else { return Err(Refusal::UnknownSchedule(id)) };
        let schedule = &entry.schedule;
        let (tenant, submitter, plan) = (schedule.tenant.clone(), schedule.submitter.clone(), entry.plan.clone());
        let inputs = schedule.spec.inputs.clone();
        let queue = match schedule.queue {
            // One that was closed takes no more jobs: what is due runs all the same.
            Some(queue) => match self.find_open_queue(QueueRef::Id(queue), &tenant) {
                Ok(queue) => queue,
                Err(_) => self.implicit_queue(&tenant, step)?,
            },
            None => self.implicit_queue(&tenant, step)?,
        };
        let birth = Birth {
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
        let workflow = self.add_flow(birth, plan, inputs, value, step);
        self.stats.flows.schedules_fired += 1;
        if let Some(entry) = self.flows.schedules.get_mut(&id) {
            entry.schedule.last_workflow = Some(workflow);
            entry.schedule.started += 1;
            entry.schedule.trouble = None;
            let live = self.flows.map.get(&workflow).is_some_and(|flow| !flow.record.state.is_terminal());
            if live {
                entry.live.insert(workflow);
            }
        }
        self.touch_schedule(id, step);
        Ok(workflow)
    }

    /// A workflow has ended: what its schedule held back for that starts now.
    pub(super) fn schedule_heard(&mut self, workflow: WorkflowId) {
        let Some(from) = self.flows.map.get(&workflow).and_then(|flow| flow.record.schedule) else { return };
        let Some(entry) = self.flows.schedules.get_mut(&from.id) else { return };
        if !entry.live.remove(&workflow) || !entry.live.is_empty() {
            return;
        }
        if !entry.schedule.paused && (entry.schedule.waiting_slot.is_some() || entry.armed.is_none()) {
            self.set_alarm(from.id, Some(self.now));
        }
    }

    pub(crate) fn pause_schedule(
        &mut self,
        request: RequestId,
        id: ScheduleId,
        paused: bool,
        by: &Actor,
        step: &mut Step,
    ) {
        let now = self.now;
        let Some(entry) = self.flows.schedules.get_mut(&id) else {
            return step.answer(request, Answer::Refused(Refusal::UnknownSchedule(id)));
        };
        if entry.schedule.paused != paused {
            entry.schedule.paused = paused;
            // What would have been started meanwhile was not wanted.
            entry.schedule.skipped += u64::from(entry.schedule.waiting_slot.take().is_some());
            entry.schedule.last_slot = entry.schedule.last_slot.max(now);
            let name = entry.schedule.name.clone();
            let action = if paused { Action::SchedulePaused } else { Action::ScheduleResumed };
            self.note_schedule_act(action, &name, by, step);
            self.touch_schedule(id, step);
            self.arm_schedule(id);
        }
        if let Some(entry) = self.flows.schedules.get(&id) {
            step.answer(request, Answer::Schedule(Box::new(entry.schedule.clone())));
        }
    }

    pub(crate) fn remove_schedule(&mut self, request: RequestId, id: ScheduleId, by: &Actor, step: &mut Step) {
        self.set_alarm(id, None);
        let Some(entry) = self.flows.schedules.remove(&id) else {
            return step.answer(request, Answer::Refused(Refusal::UnknownSchedule(id)));
        };
        self.flows.dirty_schedules.remove(&id);
        step.batch.delete(Keyspace::Schedules, &id.key());
        step.batch.put(Keyspace::Meta, model::key::META_LAST_ID, &self.last_id.to_be_bytes());
        step.tell(&Change::ScheduleRemoved { id, at: self.now });
        self.note_schedule_act(Action::ScheduleRemoved, &entry.schedule.name, by, step);
        step.answer(request, Answer::ScheduleRemoved);
    }

    /// Starts what a schedule starts, now, whatever its overlap policy says.
    pub(crate) fn trigger_schedule(&mut self, request: RequestId, id: ScheduleId, by: &Actor, step: &mut Step) {
        let name = self.flows.schedules.get(&id).map(|entry| entry.schedule.name.clone());
        match (name, self.start_slot(id, self.now, step)) {
            (Some(name), Ok(workflow)) => {
                self.note_schedule_act(Action::ScheduleTriggered, &name, by, step);
                self.answer_flow(request, workflow, step);
            }
            (_, Err(refusal)) => step.answer(request, Answer::Refused(refusal)),
            (None, Ok(_)) => step.answer(request, Answer::Refused(Refusal::UnknownSchedule(id))),
        }
    }

    /// A schedule as it is.
    pub fn schedule(&self, id: ScheduleId) -> Option<&Schedule> {
        self.flows.schedules.get(&id).map(|entry| &entry.schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(late: &[bool]) -> Vec<(Millis, bool)> {
        late.iter().enumerate().map(|(index, late)| (Millis(index as u64 + 1), *late)).collect()
    }

    #[test]
    fn missed_slots_are_dropped_made_up_for_once_or_all_started() {
        let missed = slots(&[true, true, false]);
        let start = |catch_up| choose(&missed, catch_up).unwrap();
        assert_eq!(start(CatchUp::Skip).start, [Millis(3)]);
        assert_eq!(start(CatchUp::Once).start, [Millis(3)]);
        assert_eq!(start(CatchUp::All).start, [Millis(1), Millis(2), Millis(3)]);
        assert_eq!(start(CatchUp::Skip).skipped, 2);
        let only_missed = slots(&[true, true]);
        assert_eq!(choose(&only_missed, CatchUp::Skip).unwrap().start, []);
        assert_eq!(choose(&only_missed, CatchUp::Once).unwrap().start, [Millis(2)]);
        assert_eq!(choose(&[], CatchUp::All), None);
    }
}
