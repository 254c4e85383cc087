//! Nodes that are away when the control node restarts.

use model::state::State;

use crate::support::{Cluster, Gate, Loss, is_running, wait_until};

const GRACE_MS: u64 = 4_000;

fn now_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}

// FEATURES: B6
#[test]
fn jobs_of_a_node_that_is_away_wait_for_the_grace_and_run_elsewhere_without_a_retry() {
    let mut cluster = Cluster::start_with(&format!("cluster: {{reconnect_grace_ms: {GRACE_MS}}}\n"), 3);
    let (mut gate, names) = (cluster.gate("gate"), ["a", "b"]);
    let (jobs, pids) = cluster.start_on(0, &gate, names);
    let ([present], [pid]) = cluster.start_on(1, &gate, ["present"]);
    cluster.control().kill_server();
    cluster.runner(0).host().lose(Loss::ALL);
    cluster.runner(0).kill();
    wait_until("its attempts end with it", || pids.iter().all(|pid| !is_running(*pid)));
    let restarted_at = now_ms();
    cluster.control().start();
    cluster.wait_until_control_is_ready();
    cluster.wait_until_ready(1);
    for id in jobs {
        let job = cluster.job(id);
        // On a slow machine the grace may be over.
        if now_ms() < restarted_at + GRACE_MS {
            assert_eq!((job.state, job.attempt.0), (State::Running, 1), "its node may come back: {job:#?}");
        }
    }
    gate.wait_for_attempts(names, 2);
    assert!(now_ms() >= restarted_at + GRACE_MS, "nothing is started elsewhere before the grace is over");
    assert!(is_running(pid), "a node that has connected again keeps its jobs");
    gate.open();
    for (name, id) in names.iter().zip(jobs) {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, 2)));
    }
    assert_eq!(cluster.wait_for_success(present).result, Some(Gate::result("present", 1)));
}

// FEATURES: B6
#[test]
fn jobs_of_a_node_that_comes_back_within_the_grace_go_on() {
    let mut cluster = Cluster::start_with("cluster: {reconnect_grace_ms: 600000}\n", 2);
    let mut gate = cluster.gate("gate");
    let ([id], [pid]) = cluster.start_on(0, &gate, ["a"]);
    cluster.control().kill_server();
    cluster.runner(0).host().lose(Loss::ALL);
    cluster.control().start();
    cluster.wait_until_control_is_ready();
    cluster.wait_until_ready(1);
    assert_eq!(cluster.job(id).state, State::Running);
    cluster.runner(0).host().heal();
    cluster.wait_until_ready(0);
    assert!(is_running(pid));
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 1)));
}
