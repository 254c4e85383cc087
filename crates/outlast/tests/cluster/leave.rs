//! Runner nodes that leave on purpose: drain, restart, stop and removal.

use rustix::process::Signal;

use crate::support::{Cluster, Gate, is_running};

// FEATURES: B6, C2
#[test]
fn work_of_a_drained_node_is_taken_back_at_the_deadline_and_runs_elsewhere() {
    let mut cluster = Cluster::start(4);
    let node = cluster.id(0).to_string();
    let mut gate = cluster.gate("gate");
    let names = ["a", "b", "c"];
    let (jobs, pids) = cluster.start_on(0, &gate, names);
    cluster.run(["nodes", "drain", &node, "--deadline", "500ms", "--reason", "new disk"]).expect(0);
    gate.wait_for_attempts(names, 2);
    assert!(pids.iter().all(|pid| !is_running(*pid)), "the next attempt starts after the first has stopped");
    let drained = cluster.wait_for_node(0, "drained");
    assert_eq!(drained.cordon.unwrap().reason.as_deref(), Some("new disk"));

    // The decision outlives restarts of the node and of the control node.
    cluster.runner(0).kill_server();
    cluster.runner(0).start();
    cluster.wait_until_connected(0);
    assert_eq!(cluster.node(0).state, "drained");
    cluster.control().kill_server();
    cluster.control().start();
    cluster.wait_until_control_is_ready();
    (0..4).for_each(|index| cluster.wait_until_connected(index));
    assert_eq!(cluster.node(0).state, "drained");
    gate.open();
    let elsewhere = cluster.submit(&gate.job("d", &cluster.anywhere()));
    assert_ne!(cluster.wait_for_success(elsewhere).runner, Some(cluster.runner_id(0)));
    for (name, id) in names.iter().zip(jobs) {
        let job = cluster.wait_for_success(id);
        assert_eq!(job.result, Some(Gate::result(name, 2)));
        assert_ne!(job.runner, Some(cluster.runner_id(0)));
    }

    let uncordoned = cluster.run(["nodes", "uncordon", &node]).expect(0).stdout;
    assert!(uncordoned.contains("is ready"), "{uncordoned}");
    cluster.wait_for_node(0, "ready");
    cluster.assert_gets_work(0);
}

// FEATURES: C2
#[test]
fn a_drain_without_a_deadline_lets_work_end() {
    let mut cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let ([id], _) = cluster.start_on(0, &gate, ["a"]);
    // The state in the answer is not asserted: it is `drained` if the attempt has just started.
    cluster.run(["nodes", "drain", &cluster.id(0).to_string()]).expect(0);
    cluster.wait_for_node(0, "draining");
    // Its server is replaced, as for an upgrade: still the same attempt.
    assert_eq!(cluster.runner(0).end_with(Signal::TERM), Some(0));
    cluster.runner(0).start();
    cluster.wait_until_connected(0);
    cluster.wait_for_node(0, "draining");
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 1)));
    cluster.wait_for_node(0, "drained");
}

// FEATURES: C2
#[test]
fn work_of_an_abandoned_node_is_stopped_at_once_and_runs_elsewhere() {
    let mut cluster = Cluster::start(2);
    let node = cluster.id(0).to_string();
    let mut gate = cluster.gate("gate");
    let names = ["a", "b", "c"];
    let (jobs, pids) = cluster.start_on(0, &gate, names);
    cluster.run(["nodes", "session", "abandoned", &node, "--reason", "spot notice"]).expect(0);
    gate.wait_for_attempts(names, 2);
    assert!(pids.iter().all(|pid| !is_running(*pid)), "the next attempt starts after the first has stopped");
    let abandoned = cluster.wait_for_node(0, "abandoned");
    assert_eq!((abandoned.healthy, abandoned.session.reason.as_deref()), (false, Some("spot notice")));

    // The session outlives a restart of the control node, and ends with the next start of the node.
    cluster.control().kill_server();
    cluster.control().start();
    cluster.wait_until_control_is_ready();
    (0..2).for_each(|index| cluster.wait_until_connected(index));
    assert_eq!(cluster.node(0).state, "abandoned");
    gate.open();
    for (name, id) in names.iter().zip(jobs) {
        let job = cluster.wait_for_success(id);
        assert_eq!((job.result, job.runner), (Some(Gate::result(name, 2)), Some(cluster.runner_id(1))));
    }
    assert_eq!(cluster.runner(0).end_with(Signal::TERM), Some(0));
    cluster.runner(0).start();
    assert_eq!(cluster.wait_for_node(0, "ready").session.number, 2);
    cluster.assert_gets_work(0);
}

// FEATURES: B6
#[test]
fn a_node_that_is_stopped_gives_its_work_back() {
    let mut cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let ([id], [pid]) = cluster.start_on(0, &gate, ["a"]);
    assert_eq!(cluster.runner(0).end_with(Signal::INT), Some(0));
    gate.wait_for_attempt("a", 2);
    assert!(!is_running(pid));
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 2)));
}

// FEATURES: B9
#[test]
fn a_removed_node_is_not_accepted_any_more_and_its_work_runs_elsewhere() {
    let cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let ([id], _) = cluster.start_on(0, &gate, ["a"]);
    cluster.run(["nodes", "rm", &cluster.id(0).to_string()]).expect(0);
    // The first attempt is not asserted to end: the removed node is not told to stop it.
    gate.wait_for_attempt("a", 2);
    cluster.wait_for_log(0, "was removed from the cluster: join again with a new data directory");
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 2)));
    assert_eq!(cluster.ask(cluster.client().nodes()).items.len(), 2);
    cluster.assert_never_lost(1);
}
