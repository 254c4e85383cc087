//! A node that cannot run anything is cordoned, and its failures cost the jobs nothing.

use serde_json::json;

use crate::support::{Cluster, wait_until};

#[test]
fn a_node_that_fails_distinct_jobs_is_cordoned_and_the_jobs_succeed_elsewhere() {
    let mut cluster = Cluster::start(2);
    let scratch = cluster.runner(0).data().join("scratch");
    std::fs::remove_dir_all(&scratch).unwrap();
    std::fs::write(&scratch, "no attempt can be set up below a file").unwrap();
    let job = |number: u32| {
        json!({
            "run": {"process": {"command": ["echo", number.to_string()]}},
            "sandbox": "none",
            "labels": cluster.anywhere(),
        })
    };
    let mut submitted = Vec::new();
    wait_until("the node is cordoned", || {
        submitted.push(cluster.submit(&job(submitted.len() as u32)));
        cluster.node(0).cordon.is_some()
    });
    let cordon = cluster.node(0).cordon.unwrap();
    assert!(cordon.reason.as_deref().is_some_and(|reason| reason.contains("through its own fault")), "{cordon:?}");
    assert!(cordon.failing_since.is_some());
    assert!(cluster.node(1).cordon.is_none());
    for id in submitted {
        cluster.wait_for_success(id);
    }
    std::fs::remove_file(&scratch).unwrap();
    std::fs::create_dir(&scratch).unwrap();
    cluster.run(["nodes", "uncordon", &cluster.id(0).to_string()]).expect(0);
    cluster.assert_gets_work(0);
}
