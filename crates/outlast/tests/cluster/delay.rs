//! Links with a long and changing delay.

use std::time::Duration;

use bytes::Bytes;
use model::json::Json;
use serde_json::json;

use crate::support::{Cluster, Delay, Gate, wait_until};

/// 100 to 200 ms in each direction, so that an answer takes up to 400 ms, and between two runner nodes twice as long.
const FAR: Delay = Delay { least: Duration::from_millis(100), jitter: Duration::from_millis(100) };
const RUNNERS: usize = 3;
const JOBS: usize = 30;
/// Many segments of TCP.
const INPUT_BYTES: usize = 200_000;

// FEATURES: A5
#[test]
fn nodes_behind_slow_links_work_and_are_not_taken_for_dead() {
    let mut cluster = Cluster::start_distant(RUNNERS, FAR);
    let mut gate = cluster.gate("gate");
    // Runs all the time.
    let ([long], _) = cluster.start_on(0, &gate, ["long"]);
    let input: Vec<u8> = (0..INPUT_BYTES).map(|at| b'a' + (at % 26) as u8).collect();
    let blob = cluster.ask(cluster.client().put_blob(Bytes::from(input))).id;
    let jobs: Vec<_> = (0..JOBS)
        .map(|number| {
            let script = "wc -c < inputs/letters";
            cluster.submit(&json!({
                "run": {"process": {"command": ["sh", "-c", script]}},
                "inputs": {"letters": blob.to_string()},
                "labels": cluster.pin(number % RUNNERS),
            }))
        })
        .collect();
    for id in jobs {
        let job = cluster.wait_for_success(id);
        assert_eq!((job.attempt.0, job.result), (1, Some(Json::of(&INPUT_BYTES))));
    }
    gate.open();
    assert_eq!(cluster.wait_for_success(long).result, Some(Gate::result("long", 1)));
    for index in 0..RUNNERS {
        cluster.assert_never_lost(index);
        let connections = cluster.timeline(index).iter().filter(|event| *event == "connected").count();
        assert_eq!(connections, 1, "the link of a slow node stays open");
    }

    // A dead node behind a slow link is found as well.
    let again = cluster.gate("again");
    let ([_], _) = cluster.start_on(0, &again, ["again"]);
    cluster.runner(0).kill();
    again.wait_for_attempt("again", 2);
    wait_until("the node is lost", || cluster.was_lost(0));
    (1..RUNNERS).for_each(|index| cluster.assert_never_lost(index));
}
