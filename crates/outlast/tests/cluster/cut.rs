//! Links that lose everything, in one or both directions: neither side is told.

use crate::support::{Cluster, Gate, Loss, is_running, wait_until};

/// Cuts a node off while jobs run on it, and heals the link after this event of its timeline.
fn jobs_move_and_the_node_returns(loss: Loss, heal_after: &str) {
    let mut cluster = Cluster::start(4);
    let (mut ended, mut running) = (cluster.gate("ended"), cluster.gate("running"));
    let (first, second) = (["a", "b"], ["x", "y"]);
    let (ended_jobs, ended_pids) = cluster.start_on(0, &ended, first);
    let (running_jobs, running_pids) = cluster.start_on(0, &running, second);
    cluster.runner(0).host().lose(loss);
    cluster.wait_for_event(0, &["lost"]);
    ended.wait_for_attempts(first, 2);
    running.wait_for_attempts(second, 2);
    assert!(running_pids.iter().all(|pid| is_running(*pid)), "a node that is cut off works on");
    // Its own results of these jobs wait on the node.
    ended.open();
    wait_until("the first attempts end", || ended_pids.iter().all(|pid| !is_running(*pid)));
    for (name, id) in first.iter().zip(ended_jobs) {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, 2)));
    }
    cluster.wait_for_event(0, &[heal_after]);
    cluster.runner(0).host().heal();
    cluster.wait_until_ready(0);
    wait_until("stale attempts are stopped", || running_pids.iter().all(|pid| !is_running(*pid)));
    wait_until("nothing is in flight on the node", || cluster.node(0).in_flight == 0);
    running.open();
    for (name, id) in first.iter().zip(ended_jobs).chain(second.iter().zip(running_jobs)) {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, 2)));
    }
    assert_eq!(cluster.ended_jobs(), first.len() + second.len());
    cluster.assert_gets_work(0);
}

// FEATURES: A5
#[test]
fn jobs_of_a_node_that_is_cut_off_run_elsewhere() {
    jobs_move_and_the_node_returns(Loss::ALL, "disconnected");
}

// FEATURES: A5
#[test]
fn jobs_of_a_node_that_is_cut_off_for_a_short_time_run_elsewhere() {
    jobs_move_and_the_node_returns(Loss::ALL, "lost");
}

// FEATURES: A5
#[test]
fn jobs_of_a_node_that_cannot_send_run_elsewhere() {
    jobs_move_and_the_node_returns(Loss::OUTGOING, "disconnected");
}

// FEATURES: A5
#[test]
fn jobs_of_a_node_that_cannot_receive_run_elsewhere() {
    jobs_move_and_the_node_returns(Loss::INCOMING, "disconnected");
}
