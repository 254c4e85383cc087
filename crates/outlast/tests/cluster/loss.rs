//! A link that loses packets.

use crate::support::{Cluster, Gate, Loss, wait_until};

const JOBS: usize = 40;

// FEATURES: A5
#[test]
fn jobs_of_a_node_with_a_lossy_link_succeed_without_a_retry() {
    let mut cluster = Cluster::start(4);
    let mut gate = cluster.gate("gate");
    let early = cluster.submit(&gate.job("early", &cluster.pin(0)));
    gate.wait_for_attempt("early", 1);
    cluster.runner(0).host().lose(Loss { outgoing: 30, incoming: 30 });
    gate.open();
    let mut jobs = vec![("early".to_owned(), early)];
    for number in 0..JOBS {
        let labels = if number % 2 == 0 { cluster.pin(0) } else { cluster.anywhere() };
        let name = format!("job{number}");
        jobs.push((name.clone(), cluster.submit(&gate.job(&name, &labels))));
    }
    for (name, id) in &jobs {
        let job = cluster.wait_for_success(*id);
        assert_eq!(job.result, Some(Gate::result(name, job.attempt.0.into())));
    }
    cluster.wait_for_event(0, &["probe failed", "suspected"]);
    cluster.runner(0).host().heal();
    wait_until("probes are answered", || cluster.node(0).probes.as_deref() == Some("alive"));
    assert_eq!(cluster.ended_jobs(), jobs.len());
    if (0..4).any(|index| cluster.was_lost(index)) {
        println!("a node was lost: {:?}", cluster.timeline(0));
    }
}
