//! SIGKILL of runner nodes.

use model::state::State;
use rustix::process::Signal;

use crate::support::{Cluster, Gate, Loss, is_running, send_signal, wait_until};

// FEATURES: A5, A16
#[test]
fn jobs_of_a_killed_node_run_elsewhere_without_a_retry() {
    let mut cluster = Cluster::start(4);
    let mut gate = cluster.gate("gate");
    let names = ["a", "b", "c"];
    let (jobs, pids) = cluster.start_on(0, &gate, names);
    cluster.runner(0).kill();
    gate.wait_for_attempts(names, 2);
    assert!(pids.iter().all(|pid| !is_running(*pid)), "attempts end with their spawner");
    gate.open();
    for (name, id) in names.iter().zip(jobs) {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, 2)));
    }
    assert_eq!(cluster.node(0).state, "lost");
    println!("{}", cluster.run(["nodes", "show", &cluster.id(0).to_string()]).expect(0).stdout);
    let timeline = cluster.timeline(0);
    let position = |event: &str| {
        let found = timeline.iter().position(|known| known == event);
        found.unwrap_or_else(|| panic!("no `{event}` in {timeline:?}"))
    };
    for event in ["tether closed", "disconnected"] {
        assert!(position("connected") < position(event) && position(event) < position("lost"), "{timeline:?}");
    }
    (1..4).for_each(|index| cluster.assert_never_lost(index));
}

/// The machine is gone: nothing tells the control node that the connections have ended.
// FEATURES: A5
#[test]
fn jobs_of_a_machine_without_power_run_elsewhere_without_a_retry() {
    let mut cluster = Cluster::start(4);
    let mut gate = cluster.gate("gate");
    let ([id], [pid]) = cluster.start_on(0, &gate, ["a"]);
    cluster.runner(0).host().lose(Loss::ALL);
    cluster.runner(0).kill();
    gate.wait_for_attempt("a", 2);
    assert!(!is_running(pid));
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 2)));
    let timeline = cluster.timeline(0);
    assert!(timeline.iter().any(|event| event == "suspected"), "{timeline:?}");
    // The machine is switched on again.
    cluster.runner(0).host().heal();
    cluster.runner(0).start();
    cluster.wait_until_ready(0);
}

// FEATURES: B8
#[test]
fn a_job_continues_as_the_same_attempt_while_its_server_is_replaced() {
    let mut cluster = Cluster::start(4);
    let mut gate = cluster.gate("gate");
    let names = ["a", "b"];
    let (jobs, pids) = cluster.start_on(0, &gate, names);
    let spawner = cluster.runner(0).spawner();
    cluster.runner(0).kill_server();
    cluster.wait_for_node(0, "disconnected");
    cluster.runner(0).start();
    cluster.wait_until_ready(0);
    assert_eq!(cluster.runner(0).spawner(), spawner);
    assert!(pids.iter().all(|pid| is_running(*pid)));
    assert!(jobs.iter().all(|id| cluster.job(*id).state == State::Running));
    gate.open();
    for (name, id) in names.iter().zip(jobs) {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, 1)));
    }
    cluster.assert_never_lost(0);
}

// FEATURES: B8
#[test]
fn a_job_that_ends_while_there_is_no_server_is_reported_by_the_next_one() {
    let mut cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let names = ["a", "b", "c", "d"];
    let (jobs, pids) = cluster.start_on(0, &gate, names);
    cluster.runner(0).kill_server();
    gate.open();
    wait_until("the attempts end", || pids.iter().all(|pid| !is_running(*pid)));
    assert!(jobs.iter().all(|id| !cluster.job(*id).state.is_terminal()));
    cluster.runner(0).start();
    for (name, id) in names.iter().zip(jobs) {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, 1)));
    }
    cluster.assert_never_lost(0);
}

// FEATURES: B8
#[test]
fn a_killed_spawner_is_replaced_and_its_jobs_run_again_without_a_retry() {
    let mut cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let ([id], [pid]) = cluster.start_on(0, &gate, ["a"]);
    let tethers = |cluster: &Cluster| cluster.timeline(0).iter().filter(|event| *event == "tether opened").count();
    let before = tethers(&cluster);
    send_signal(cluster.runner(0).spawner(), Signal::KILL);
    gate.wait_for_attempt("a", 2);
    assert!(!is_running(pid));
    wait_until("the new spawner holds a tether", || tethers(&cluster) > before);
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 2)));
    cluster.assert_never_lost(0);
}
