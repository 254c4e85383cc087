//! Copied data directories: two processes with one identity.

use model::id::JobId;

use crate::support::{Cluster, Gate, Node, copy_directory, is_running, wait_until};

/// A node that runs a job, and another one that is to get a copy of its data directory.
struct Original {
    cluster: Cluster,
    gate: Gate,
    copy: Node,
    id: JobId,
    /// Process of the job.
    pid: u32,
}

impl Original {
    fn start(runners: usize) -> Self {
        let mut cluster = Cluster::start(runners);
        let gate = cluster.gate("gate");
        let address = cluster.cluster_address().to_string();
        let copy = cluster.new_node("copy", &["join", "--name", "copy", &address]);
        let id = cluster.submit(&gate.job("a", &cluster.pin(0)));
        let pid = gate.wait_for_attempt("a", 1);
        Self { cluster, gate, copy, id, pid }
    }
}

/// The copy is made while the server of the node is down, so that both start with the same incarnation.
// FEATURES: B9
#[test]
fn a_copy_of_a_data_directory_is_refused() {
    let Original { mut cluster, mut gate, mut copy, id, .. } = Original::start(2);
    cluster.runner(0).kill_server();
    copy_directory(&cluster.runner(0).data(), &copy.data());
    cluster.runner(0).start();
    cluster.wait_until_ready(0);
    copy.start_on_machine_of_its_own();
    wait_until("the copy is refused", || copy.log().contains("a data directory was copied"));
    cluster.wait_until_ready(0);
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 1)));
    let timeline = cluster.timeline(0);
    let connections = timeline.iter().filter(|event| *event == "connected").count();
    assert_eq!(connections, 2, "the node stays connected: {timeline:?}");
    cluster.assert_never_lost(0);
}

/// The copy starts with a higher incarnation than the original, as if the node was restarted.
// FEATURES: B9
#[test]
fn a_copy_of_a_running_node_does_not_displace_it() {
    let Original { mut cluster, mut gate, mut copy, id, .. } = Original::start(2);
    copy_directory(&cluster.runner(0).data(), &copy.data());
    copy.start_on_machine_of_its_own();
    wait_until("the copy is refused", || copy.log().contains("a data directory was copied"));
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 1)));
    cluster.assert_never_lost(0);
    cluster.assert_gets_work(0);
}

/// The copy finds the processes of the original in the process table that they share.
#[test]
fn a_copy_on_the_same_machine_leaves_the_processes_of_the_original_alone() {
    let Original { mut cluster, mut gate, mut copy, id, pid } = Original::start(1);
    copy_directory(&cluster.runner(0).data(), &copy.data());
    copy.start();
    wait_until("the copy is refused", || copy.log().contains("a data directory was copied"));
    // Its spawner is started before it connects, and with it what was left behind is killed.
    copy.spawner();
    assert!(is_running(pid));
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 1)));
    cluster.assert_never_lost(0);
}
