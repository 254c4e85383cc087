//! What the difference between two versions of a record tells.

use engine::Gate;
use model::job::Job;
use model::message::Ticket;
use model::state::State;
use model::verdict::{Decision, Verdict};

use super::Loss;
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
