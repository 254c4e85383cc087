//! SIGSTOP of a runner node.

use crate::support::{Cluster, Gate, is_running, wait_until};

// FEATURES: A5
#[test]
fn a_stopped_node_comes_back_and_none_of_its_results_is_accepted() {
    let mut cluster = Cluster::start(4);
    let (mut ended, mut running) = (cluster.gate("ended"), cluster.gate("running"));
    let (first, second) = (["a", "b", "c"], ["x", "y", "z"]);
    let (ended_jobs, ended_pids) = cluster.start_on(0, &ended, first);
    let (running_jobs, running_pids) = cluster.start_on(0, &running, second);
    cluster.runner(0).stop();
    cluster.wait_for_node(0, "lost");
    ended.wait_for_attempts(first, 2);
    running.wait_for_attempts(second, 2);
    // Programs are not stopped: the first attempts end as well, while nobody can report it.
    ended.open();
    wait_until("the first attempts end", || ended_pids.iter().all(|pid| !is_running(*pid)));
    for (name, id) in first.iter().zip(ended_jobs) {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, 2)));
    }
    cluster.runner(0).resume();
    // Its state is not asserted: a node whose link has stayed open is shown as lost although it gets work.
    cluster.wait_until_ready(0);
    wait_until("stale attempts are stopped", || running_pids.iter().all(|pid| !is_running(*pid)));
    wait_until("nothing is in flight on the node", || cluster.node(0).in_flight == 0);
    running.open();
    for (name, id) in first.iter().zip(ended_jobs).chain(second.iter().zip(running_jobs)) {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, 2)));
    }
    assert_eq!(cluster.ended_jobs(), first.len() + second.len());
    cluster.assert_gets_work(0);

    // A node that was lost once and came back on the same link dies like any other.
    let mut again = cluster.gate("again");
    let ([id], _) = cluster.start_on(0, &again, ["again"]);
    cluster.runner(0).kill();
    again.wait_for_attempt("again", 2);
    again.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("again", 2)));
}

/// A pause that is shorter than the suspicion.
// FEATURES: A5
#[test]
fn a_node_that_resumes_in_time_keeps_its_jobs() {
    let mut cluster = Cluster::start(4);
    let mut gate = cluster.gate("gate");
    let ([id], _) = cluster.start_on(0, &gate, ["a"]);
    cluster.runner(0).stop();
    cluster.wait_for_event(0, &["probe failed", "suspected"]);
    cluster.runner(0).resume();
    wait_until("probes are answered", || cluster.node(0).probes.as_deref() == Some("alive"));
    gate.open();
    let job = cluster.wait_for_success(id);
    // On a slow machine the test itself may have been late.
    if !cluster.was_lost(0) {
        assert_eq!((job.result, job.runner), (Some(Gate::result("a", 1)), Some(cluster.runner_id(0))));
    }
}
