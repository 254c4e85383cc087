//! Attempts of workflow jobs that were given up and may still run: their stop is not confirmed.
//!
//! A rollback waits for them, so that no compensation runs beside the task it compensates. An attempt is confirmed as
//! stopped by the report of its end, by an inventory of its runner without it, or by the loss of the runner. The rows of
//! ended tasks list their unconfirmed attempts, so that a restarted shard waits as well.

use std::collections::{BTreeMap, BTreeSet};

use model::id::{Incarnation, JobId, RunnerId, WorkflowId};
use model::message::AttemptRef;
use model::workflow::{TaskKey, UnconfirmedAttempt, WorkflowState};

use super::Workflows;
use super::live::LiveWorkflow;
use crate::anomaly::Anomaly;
use crate::shard::{Map, Shard};
use crate::step::Step;

/// Limit of unconfirmed attempts in a row. More than that means that runners confirm nothing.
const PER_TASK_MAX: usize = 64;

/// An attempt whose stop is not confirmed.
#[derive(Debug, Clone, Copy)]
struct Unconfirmed {
    runner: RunnerId,
    incarnation: Incarnation,
    /// Inventories up to this one were requested before the attempt was dispatched.
    inventory: u64,
    /// The ended task that lists it. Absent while its job is live.
    task: Option<(WorkflowId, TaskKey)>,
}

/// All unconfirmed attempts of workflow jobs.
#[derive(Debug, Default)]
pub(crate) struct UnconfirmedAttempts {
    attempts: BTreeMap<AttemptRef, Unconfirmed>,
    /// How many each runner has.
    by_runner: Map<RunnerId, u32>,
}

impl UnconfirmedAttempts {
    fn insert(&mut self, attempt_ref: AttemptRef, attempt: Unconfirmed) {
        if self.attempts.insert(attempt_ref, attempt).is_none() {
            *self.by_runner.entry(attempt.runner).or_default() += 1;
        }
    }

    fn remove(&mut self, attempt_ref: AttemptRef) -> Option<Unconfirmed> {
        let attempt = self.attempts.remove(&attempt_ref)?;
        if let Some(count) = self.by_runner.get_mut(&attempt.runner) {
            *count -= 1;
            if *count == 0 {
                self.by_runner.remove(&attempt.runner);
            }
        }
        Some(attempt)
    }

    fn of_job(&self, job: JobId) -> impl Iterator<Item = (AttemptRef, Unconfirmed)> {
        let first = AttemptRef { job, attempt: model::id::Attempt(0) };
        let last = AttemptRef { job, attempt: model::id::Attempt(u32::MAX) };
        self.attempts.range(first..=last).map(|(attempt_ref, attempt)| (*attempt_ref, *attempt))
    }

    /// The attempts of a runner that `is_confirmed` selects.
    fn select(&self, runner: RunnerId, is_confirmed: impl Fn(AttemptRef, Unconfirmed) -> bool) -> Vec<AttemptRef> {
        if !self.by_runner.contains_key(&runner) {
            return Vec::new();
        }
        let own = self.attempts.iter().filter(|(_, attempt)| attempt.runner == runner);
        own.filter(|(attempt_ref, attempt)| is_confirmed(**attempt_ref, **attempt)).map(|(it, _)| *it).collect()
    }
}

impl Workflows {
    /// Stops tracking attempts that the rows of a workflow no longer list: their tasks run again.
    pub(super) fn forget_unlisted_unconfirmed(&mut self, id: WorkflowId) {
        let Some(workflow) = self.map.get_mut(&id) else { return };
        let lists = || workflow.rows().filter_map(|(_, row)| row.unconfirmed.as_ref()).flat_map(|list| list.iter());
        let listed: BTreeSet<AttemptRef> = lists().map(|it| AttemptRef { job: it.job, attempt: it.attempt }).collect();
        let of_workflow = |attempt: &Unconfirmed| attempt.task.is_some_and(|(workflow, _)| workflow == id);
        let tracked = self.unconfirmed.attempts.iter().filter(|(_, attempt)| of_workflow(attempt));
        let gone: Vec<AttemptRef> = tracked.map(|(it, _)| *it).filter(|it| !listed.contains(it)).collect();
        workflow.unconfirmed = listed.len() as u32;
        for attempt_ref in gone {
            self.unconfirmed.remove(attempt_ref);
        }
    }

    /// Stops tracking the attempts that the rows of a workflow list.
    pub(super) fn untrack_unconfirmed(&mut self, workflow: &LiveWorkflow) {
        if workflow.unconfirmed == 0 {
            return;
        }
        for list in workflow.rows().filter_map(|(_, row)| row.unconfirmed.as_ref()) {
            for it in list.iter() {
                self.unconfirmed.remove(AttemptRef { job: it.job, attempt: it.attempt });
            }
        }
    }
}

impl Shard {
    /// Notes that an attempt of a workflow job was given up without confirmation.
    pub(crate) fn note_unconfirmed(&mut self, attempt_ref: AttemptRef, runner: RunnerId, incarnation: Incarnation) {
        let inventory = self.jobs.get(attempt_ref.job).map_or(0, |entry| entry.dispatched_after());
        let attempt = Unconfirmed { runner, incarnation, inventory, task: None };
        self.workflows.unconfirmed.insert(attempt_ref, attempt);
    }

    /// Restores the attempts of a live workflow job that were given up before. Their ends are unknown: some may have
    /// been lost with their runner, which its next registration confirms.
    pub(crate) fn restore_unconfirmed(&mut self, job: &model::job::Job) {
        if job.origin.is_none() {
            return;
        }
        for attempt in job.attempts.iter().filter(|attempt| attempt.end.is_none()) {
            if attempt.attempt != job.attempt || !job.state.is_on_runner() {
                let attempt_ref = AttemptRef { job: job.id, attempt: attempt.attempt };
                self.note_unconfirmed(attempt_ref, attempt.runner, attempt.incarnation);
            }
        }
    }

    /// Lists the unconfirmed attempts of an ended job, or of an ended compensation, in the row of its task.
    pub(super) fn list_unconfirmed(&mut self, id: WorkflowId, task_key: TaskKey, job: JobId) {
        let found: Vec<(AttemptRef, Unconfirmed)> = self.workflows.unconfirmed.of_job(job).collect();
        if found.is_empty() {
            return;
        }
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "list unconfirmed attempts");
        };
        let mut listed = 0;
        if let Some(row) = workflow.row_mut(task_key, now) {
            let list = row.unconfirmed.get_or_insert_default();
            let room = PER_TASK_MAX.saturating_sub(list.len());
            list.extend(found.iter().take(room).map(|(attempt_ref, attempt)| UnconfirmedAttempt {
                job: attempt_ref.job,
                attempt: attempt_ref.attempt,
                runner: attempt.runner,
                incarnation: attempt.incarnation,
            }));
            listed = found.len().min(room);
        }
        workflow.unconfirmed += listed as u32;
        for (number, (attempt_ref, attempt)) in found.into_iter().enumerate() {
            self.workflows.unconfirmed.remove(attempt_ref);
            if number < listed {
                let attempt = Unconfirmed { task: Some((id, task_key)), ..attempt };
                self.workflows.unconfirmed.insert(attempt_ref, attempt);
            }
        }
    }

    /// Tracks the attempts that the rows of a restored or fetched workflow list.
    pub(super) fn track_unconfirmed(&mut self, id: WorkflowId) {
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "track unconfirmed attempts");
        };
        let listed: Vec<(TaskKey, UnconfirmedAttempt)> = workflow
            .rows()
            .flat_map(|(task_key, row)| {
                row.unconfirmed.iter().flat_map(|list| list.iter()).map(move |it| (task_key, *it))
            })
            .collect();
        workflow.unconfirmed = listed.len() as u32;
        for (task_key, UnconfirmedAttempt { job, attempt, runner, incarnation }) in listed {
            let tracked = Unconfirmed { runner, incarnation, inventory: 0, task: Some((id, task_key)) };
            self.workflows.unconfirmed.insert(AttemptRef { job, attempt }, tracked);
        }
    }

    /// Whether rollbacks wait for attempts of a runner.
    pub(crate) fn has_unconfirmed(&self, runner: RunnerId) -> bool {
        self.workflows.unconfirmed.by_runner.contains_key(&runner)
    }

    /// The runner reported the end of an attempt.
    #[inline]
    pub(crate) fn confirm_stopped(&mut self, runner: RunnerId, attempt_ref: AttemptRef, step: &mut Step) {
        // Almost always: called for every end of an attempt.
        if self.workflows.unconfirmed.attempts.is_empty() {
            return;
        }
        let attempt = self.workflows.unconfirmed.attempts.get(&attempt_ref);
        // Otherwise it is the end of a dispatch that the store has lost. Its number was used again on another runner.
        if attempt.is_some_and(|attempt| attempt.runner == runner) {
            self.confirm(attempt_ref, step);
        }
    }

    /// An attempt does not run any more.
    fn confirm(&mut self, attempt_ref: AttemptRef, step: &mut Step) {
        let Some(attempt) = self.workflows.unconfirmed.remove(attempt_ref) else { return };
        let Some((id, task_key)) = attempt.task else { return };
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "confirm a stop");
        };
        workflow.unconfirmed = workflow.unconfirmed.saturating_sub(1);
        let is_last = workflow.unconfirmed == 0;
        if let Some(row) = workflow.row_mut(task_key, now)
            && let Some(list) = row.unconfirmed.as_mut()
        {
            list.retain(|it| (it.job, it.attempt) != (attempt_ref.job, attempt_ref.attempt));
            if list.is_empty() {
                row.unconfirmed = None;
            }
        }
        self.backlog.add_written(super::flush::ROW_BYTES);
        if is_last {
            self.workflows.wake(id);
            self.check_settled(id, step);
        }
    }

    /// A runner has registered, or answered an inventory request. `in_flight` is sorted. `answered`: number of the
    /// request that it answers, or 0.
    pub(crate) fn confirm_absent(
        &mut self,
        runner: RunnerId,
        incarnation: Incarnation,
        in_flight: &[AttemptRef],
        answered: u64,
        step: &mut Step,
    ) {
        let absent = self.workflows.unconfirmed.select(runner, |attempt_ref, attempt| {
            // A dispatch may reach its runner after an inventory that was requested before it.
            let is_complete = attempt.incarnation < incarnation || answered > attempt.inventory;
            is_complete && in_flight.binary_search(&attempt_ref).is_err()
        });
        for attempt_ref in absent {
            self.confirm(attempt_ref, step);
        }
    }

    /// A runner is lost with all its attempts.
    pub(crate) fn confirm_lost(&mut self, runner: RunnerId, incarnation: Incarnation, step: &mut Step) {
        let lost = self.workflows.unconfirmed.select(runner, |_, attempt| attempt.incarnation <= incarnation);
        for attempt_ref in lost {
            self.confirm(attempt_ref, step);
        }
    }

    /// Requests inventories of the runners with attempts that a fetched workflow lists. A runner that is not known any
    /// more runs nothing.
    pub(super) fn ask_for_unconfirmed(&mut self, id: WorkflowId, step: &mut Step) {
        let own = self.workflows.unconfirmed.attempts.iter();
        let own = own.filter(|(_, attempt)| attempt.task.is_some_and(|(workflow, _)| workflow == id));
        let runners: BTreeMap<RunnerId, AttemptRef> = own.map(|(it, attempt)| (attempt.runner, *it)).collect();
        for runner in runners.into_keys() {
            match self.runner_mut(runner).map(|known| known.incarnation) {
                Some(incarnation) => self.request_inventory(runner, incarnation, step),
                None => self.confirm_lost(runner, Incarnation(u64::MAX), step),
            }
        }
    }

    /// Whether a rollback of the workflow, or of one that it is part of, follows its stop.
    pub(super) fn rollback_follows(&self, id: WorkflowId) -> bool {
        let mut next = Some(id);
        while let Some(workflow) = next.and_then(|id| self.workflows.map.get(&id)) {
            let rolls_back = workflow.record.after_stop.is_some_and(|then| then.rolls_back());
            if rolls_back || workflow.record.state == WorkflowState::RollingBack {
                return true;
            }
            next = workflow.record.parent.map(|(parent, _)| parent);
        }
        false
    }
}
