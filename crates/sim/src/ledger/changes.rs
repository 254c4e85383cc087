//! Classifies and counts the changes between two versions of a record.

use engine::PolicyMode;
use model::id::RunnerId;
use model::job::{End, Job};
use model::message::AttemptRef;
use model::state::State;
use model::verdict::{Decision, Verdict};
use model::workflow::{CompensationState, NoteKind, RollbackState, TaskState, WorkflowState};

use super::LostAttempt;
use super::workflows::{ChangedWorkflow, KnownWorkflow};
use crate::coverage::Coverage;
use crate::invariants::{self, DispatchSnapshot};

/// A running attempt that was given up: its job was rescheduled or failed without a reported end of the attempt.
pub fn lost_attempt(before: &Job, after: &Job) -> Option<LostAttempt> {
    let (runner, incarnation) = before.runner().filter(|_| before.state == State::Running)?;
    let ended = after.attempts.iter().find(|attempt| attempt.attempt == before.attempt)?;
    let next = after.states.get(before.states.len()).filter(|_| after.states_dropped == before.states_dropped)?;
    let lost = ended.end.is_none() && matches!(next.state, State::Scheduled | State::Failed);
    lost.then_some(LostAttempt {
        attempt_ref: AttemptRef { job: before.id, attempt: before.attempt },
        runner,
        incarnation,
    })
}

/// The newest attempt and its runner, if its success is new.
pub fn new_result(before: Option<&Job>, after: &Job) -> Option<(AttemptRef, RunnerId)> {
    let succeeded = |job: &Job| job.last_attempt().filter(|attempt| attempt.end == Some(End::Succeeded)).cloned();
    let newest = succeeded(after)?;
    let is_new = before.and_then(succeeded).is_none_or(|known| known.attempt != newest.attempt);
    is_new.then_some((AttemptRef { job: after.id, attempt: newest.attempt }, newest.runner))
}

/// Whether a newer incarnation of the runner adopted the attempt.
pub fn is_adoption(before: &Job, after: &Job) -> bool {
    let known = before.last_attempt().filter(|known| known.ended_at.is_none());
    known
        .zip(after.attempts.iter().find(|attempt| attempt.attempt == before.attempt))
        .is_some_and(|(known, now)| known.incarnation < now.incarnation)
}

/// Counts the transitions of a commit.
pub fn count_states(before: Option<&Job>, after: &Job, coverage: &mut Coverage) {
    let old = before.map_or(0, invariants::states_ever);
    let added = invariants::states_ever(after).saturating_sub(old).min(after.states.len());
    let first_new = after.states.len() - added;
    for index in first_new..after.states.len() {
        let from = index.checked_sub(1).and_then(|index| after.states.get(index)).map(|entry| entry.state);
        coverage.count_transition(from, after.states[index].state);
    }
}

/// Counts the policy conditions of a started attempt.
pub fn count_start(job: &Job, snapshot: &DispatchSnapshot, coverage: &mut Coverage) {
    let PolicyMode::Enforced(version) = snapshot.policy else { return };
    coverage.count("attempts started under a policy");
    if job.decisions.iter().any(|decision| decision.policy != Some(version)) {
        coverage.count("attempts started after a policy change");
    }
    let requires_approval = |decision: &Decision| decision.verdict == Verdict::RequireApproval;
    if snapshot.decision.as_ref().is_some_and(requires_approval) {
        coverage.count("attempts started with an approval");
        if job.decisions.iter().any(|decision| requires_approval(decision) && decision.policy != Some(version)) {
            coverage.count("attempts started with an approval from an earlier policy");
        }
    }
    if snapshot.constraints.is_some() {
        coverage.count("attempts started with constraints");
    }
}

/// Counts the changes of a workflow.
pub fn count_workflow(change: &ChangedWorkflow, workflow: &KnownWorkflow, coverage: &mut Coverage) {
    let before = change.before.as_ref();
    let record = &workflow.record;
    if before.map(|before| before.state) != Some(record.state) {
        coverage.count(state_name(record.state));
    }
    if before.is_none() {
        coverage.count("workflows started");
        if record.parent.is_some() {
            coverage.count("sub-workflows started");
        }
        if record.schedule.is_some() {
            coverage.count("workflows started by schedules");
        }
    }
    if change.is_rerun(workflow) {
        coverage.count("workflows rerun");
    }
    if record.state == WorkflowState::Running && workflow.tasks.live() == 0 {
        coverage.count("workflows continued in a later step");
    }
    let rollback_of = |record: &model::workflow::Workflow| record.rollback.as_ref().map(|rollback| rollback.state);
    let (was, is) = (before.and_then(rollback_of), rollback_of(record));
    if was != is {
        coverage.count(match is {
            Some(RollbackState::RollingBack) => "rollbacks started",
            Some(RollbackState::RolledBack) if was == Some(RollbackState::PartiallyRolledBack) => {
                "rollbacks completed by a retry"
            }
            Some(RollbackState::RolledBack) => "complete rollbacks",
            Some(RollbackState::PartiallyRolledBack) => "partial rollbacks",
            None => "rollbacks cleared by a rerun",
        });
    }
    let old = before.map_or(0, |before| before.notes.len());
    for note in record.notes.get(old..).unwrap_or_default() {
        coverage.count(match note.kind {
            NoteKind::QuarantinedLate => "results quarantined late",
            NoteKind::RedactedLate => "results redacted late",
            NoteKind::Released => "results released late",
            NoteKind::EpochReached => "epochs reached",
            NoteKind::Signalled if note.task_key.is_some() => "signals delivered at once",
            NoteKind::Signalled => "signals stored",
            NoteKind::TimedOut => "workflows timed out",
            NoteKind::Paused => "workflows paused",
            NoteKind::Started
            | NoteKind::Resumed
            | NoteKind::CancelRequested
            | NoteKind::Rerun
            | NoteKind::Stopping
            | NoteKind::RollbackBegan
            | NoteKind::RollbackEnded
            | NoteKind::Ended => continue,
        });
    }
    count_rows(change, workflow, coverage);
}

fn count_rows(change: &ChangedWorkflow, workflow: &KnownWorkflow, coverage: &mut Coverage) {
    for (task_key, before) in &change.rows {
        let Some(row) = workflow.rows.get(task_key) else { continue };
        let was = before.as_ref().map(|before| before.state);
        if was != Some(row.state) {
            coverage.count(match row.state {
                TaskState::Waiting => "tasks waiting",
                TaskState::Running => "tasks running",
                TaskState::Sleeping => "tasks sleeping",
                TaskState::Listening => "tasks listening",
                TaskState::Merged => "tasks merged",
                TaskState::Succeeded => "tasks succeeded",
                TaskState::Failed => "tasks failed",
                TaskState::Skipped => "tasks skipped",
                TaskState::Cancelled => "tasks cancelled",
                TaskState::Quarantined => "tasks quarantined",
            });
            if row.chosen.is_some() {
                coverage.count("switches decided");
            }
            if task_key.item.is_some() && row.state.is_terminal() {
                coverage.count("items ended");
            }
        }
        let compensation =
            |row: &model::workflow::TaskRecord| row.compensation.as_ref().map(|compensation| compensation.state);
        let (was, is) = (before.as_ref().and_then(compensation), compensation(row));
        if was != is {
            coverage.count(match is {
                Some(CompensationState::Running) => "compensations started",
                Some(CompensationState::Done) => "compensations done",
                Some(CompensationState::Failed) => "compensations failed",
                None => "compensations cleared",
            });
        }
    }
}

fn state_name(state: WorkflowState) -> &'static str {
    match state {
        WorkflowState::Running => "workflows running",
        WorkflowState::Paused => "workflows in state paused",
        WorkflowState::Stopping => "workflows stopping",
        WorkflowState::RollingBack => "workflows rolling back",
        WorkflowState::Succeeded => "workflows succeeded",
        WorkflowState::Failed => "workflows failed",
        WorkflowState::Cancelled => "workflows cancelled",
    }
}
