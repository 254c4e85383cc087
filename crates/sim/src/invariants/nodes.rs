//! Invariants of clusters: what the control node decides about its nodes, against what really happened to them.

use fabric::liveness::Lost;
use model::id::NodeId;
use model::job::{End, Job};
use model::state::State;

use super::{Checked, describe, require};
use crate::cluster::Death;
use crate::ledger::LostAttempt;

/// A node that runs and can be reached is not declared lost.
pub fn invariant_reachable_nodes_are_not_lost(lost: Lost, is_excused: bool, silent_for: u64) -> Checked {
    require(is_excused, "invariant_reachable_nodes_are_not_lost", || {
        format!("{lost:?}, but it runs, can be reached, and was heard {silent_for} ms ago")
    })
}

/// No attempt is given up that a running, reachable node has.
pub fn invariant_attempts_of_reachable_nodes_are_kept(lost: &LostAttempt, is_kept: bool) -> Checked {
    require(!is_kept, "invariant_attempts_of_reachable_nodes_are_kept", || {
        format!("{lost:?}, but its node runs, can be reached, and has it")
    })
}

/// A dead node is found within the bound of the profile when the network works.
pub fn invariant_dead_nodes_are_found(
    (node, death): (NodeId, Death),
    found: bool,
    bound: u64,
    state: Option<fabric::State>,
) -> Checked {
    require(found, "invariant_dead_nodes_are_found", || {
        format!("{node} ({death:?}) is not lost after {bound} ms; the member list says {state:?}")
    })
}

/// A node whose server process ended, and whose tether is open, is waited for until the grace period ends.
pub fn invariant_restarted_servers_are_waited_for(lost: Lost, may_be_lost: bool) -> Checked {
    require(may_be_lost, "invariant_restarted_servers_are_waited_for", || {
        format!("{lost:?}, but its server process may still be replaced")
    })
}

/// Of all attempts of a job, wherever they were given, one result is taken. A job that ended otherwise may be retried, as
/// one whose result is quarantined.
pub fn invariant_one_result_is_taken(job: &Job) -> Checked {
    let succeeded = job.attempts.iter().filter(|attempt| attempt.end == Some(End::Succeeded)).count();
    let others = |state: State| state.is_terminal() && state != State::Succeeded;
    let retries = job.states.iter().filter(|entry| others(entry.state)).count();
    require(succeeded <= 1 + retries || job.states_dropped > 0, "invariant_one_result_is_taken", || {
        format!("{succeeded} attempts succeeded: {}", describe(job))
    })
}
