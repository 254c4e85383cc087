//! What the difference between two versions of a record tells.

use engine::Gate;
use model::job::Job;
use model::message::Ticket;
use model::state::State;
use model::verdict::{Decision, Verdict};
use model::workflow::{CompensationState, NoteKind, RollbackState, TaskState, WorkflowState};

use super::Loss;
use super::flows::{ChangedFlow, KnownFlow};
use crate::coverage::Coverage;
use crate::invariants::{self, Begun};

/// A running attempt whose job went back, or ended, without anybody having said how the attempt ended.
pub fn loss(before: &Job, after: &Job) -> Option<Loss> {
    let (runner, incarnation) = before.runner().filter(|_| before.state == State::Running)?;
    let ended = after.attempts.iter().find(|attempt| attempt.attempt == before.attempt)?;
    let next = after.states.get(before.states.len()).filter(|_| after.states_dropped == before.states_dropped)?;
    let lost = ended.end.is_none() && matches!(next.state, State::Scheduled | State::Failed);
    lost.then_some(Loss { ticket: Ticket { job: before.id, attempt: before.attempt }, runner, incarnation })
}

/// Whether an attempt has passed to a newer incarnation of its runner.
pub fn adopts(before: &Job, after: &Job) -> bool {
    let known = before.last_attempt().filter(|known| known.ended_at.is_none());
    known
        .zip(after.attempts.iter().find(|attempt| attempt.attempt == before.attempt))
        .is_some_and(|(known, now)| known.incarnation < now.incarnation)
}

/// Every state that came in with a commit.
pub fn note_states(before: Option<&Job>, after: &Job, coverage: &mut Coverage) {
    let old = before.map_or(0, invariants::states_ever);
    let added = invariants::states_ever(after).saturating_sub(old).min(after.states.len());
    let first_new = after.states.len() - added;
    for index in first_new..after.states.len() {
        let from = index.checked_sub(1).and_then(|index| after.states.get(index)).map(|entry| entry.state);
        coverage.transition(from, after.states[index].state);
    }
}

/// What is worth knowing of how an attempt came to begin.
pub fn note_start(job: &Job, begun: &Begun, coverage: &mut Coverage) {
    let Gate::Policy(version) = begun.gate else { return };
    coverage.note("attempts begun on the policy's word");
    if job.decisions.iter().any(|decision| decision.policy != Some(version)) {
        coverage.note("attempts begun after the rules had changed");
    }
    let asked = |decision: &Decision| decision.verdict == Verdict::RequireApproval;
    if begun.decision.as_ref().is_some_and(asked) {
        coverage.note("attempts begun with an approval");
        if job.decisions.iter().any(|decision| asked(decision) && decision.policy != Some(version)) {
            coverage.note("attempts begun with an approval under earlier rules");
        }
    }
    if begun.constraints.is_some() {
        coverage.note("attempts begun with limits");
    }
}

/// What is worth knowing of how a workflow goes.
pub fn note_flow(change: &ChangedFlow, flow: &KnownFlow, coverage: &mut Coverage) {
    let before = change.before.as_ref();
    let record = &flow.record;
    if before.map(|before| before.state) != Some(record.state) {
        coverage.note(state_name(record.state));
    }
    if before.is_none() {
        coverage.note("workflows started");
        if record.parent.is_some() {
            coverage.note("sub-workflows started");
        }
        if record.schedule.is_some() {
            coverage.note("workflows started by schedules");
        }
    }
    if change.is_rerun(flow) {
        coverage.note("workflows run again");
    }
    if record.state == WorkflowState::Running && flow.tasks.live() == 0 {
        coverage.note("workflows that go on later with what they may do");
    }
    let rollback_of = |record: &model::workflow::Workflow| record.rollback.as_ref().map(|rollback| rollback.state);
    let (was, is) = (before.and_then(rollback_of), rollback_of(record));
    if was != is {
        coverage.note(match is {
            Some(RollbackState::RollingBack) => "rollbacks begun",
            Some(RollbackState::RolledBack) if was == Some(RollbackState::PartiallyRolledBack) => {
                "steps undone after all"
            }
            Some(RollbackState::RolledBack) => "rollbacks of everything",
            Some(RollbackState::PartiallyRolledBack) => "partial rollbacks",
            None => "rollbacks forgotten by another run",
        });
    }
    let old = before.map_or(0, |before| before.notes.len());
    for note in record.notes.get(old..).unwrap_or_default() {
        coverage.note(match note.kind {
            NoteKind::QuarantinedLate => "results quarantined late",
            NoteKind::RedactedLate => "results redacted late",
            NoteKind::Released => "results released late",
            NoteKind::EpochReached => "epochs reached",
            NoteKind::Signalled if note.place.is_some() => "signals heard at once",
            NoteKind::Signalled => "signals kept",
            NoteKind::TimedOut => "workflows that took too long",
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
    note_rows(change, flow, coverage);
}

fn note_rows(change: &ChangedFlow, flow: &KnownFlow, coverage: &mut Coverage) {
    for (place, before) in &change.rows {
        let Some(row) = flow.rows.get(place) else { continue };
        let was = before.as_ref().map(|before| before.state);
        if was != Some(row.state) {
            coverage.note(match row.state {
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
                coverage.note("switches that chose");
            }
            if place.item.is_some() && row.state.is_terminal() {
                coverage.note("items ended");
            }
        }
        let undo = |row: &model::workflow::TaskRecord| row.compensation.as_ref().map(|undo| undo.state);
        let (was, is) = (before.as_ref().and_then(undo), undo(row));
        if was != is {
            coverage.note(match is {
                Some(CompensationState::Running) => "compensations begun",
                Some(CompensationState::Done) => "compensations done",
                Some(CompensationState::Failed) => "compensations failed",
                None => "compensations forgotten",
            });
        }
    }
}

fn state_name(state: WorkflowState) -> &'static str {
    match state {
        WorkflowState::Running => "workflows running",
        WorkflowState::Paused => "workflows that are paused",
        WorkflowState::Stopping => "workflows stopping",
        WorkflowState::RollingBack => "workflows rolling back",
        WorkflowState::Succeeded => "workflows succeeded",
        WorkflowState::Failed => "workflows failed",
        WorkflowState::Cancelled => "workflows cancelled",
    }
}
