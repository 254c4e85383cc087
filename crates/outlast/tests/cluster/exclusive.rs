//! Exclusive jobs: an attempt on a node that is cut off has ended before the next one starts.

use serde_json::json;

use crate::support::{Cluster, Gate, Loss, is_running, wait_until};

#[test]
fn an_exclusive_job_starts_elsewhere_after_its_attempt_has_ended() {
    let mut cluster = Cluster::start_with("exclusive_lease_ms: 5000\n", 2);
    let mut gate = cluster.gate("gate");
    let ([ordinary], [ordinary_pid]) = cluster.start_on(0, &gate, ["ordinary"]);
    let mut job = gate.job("alone", &cluster.anywhere());
    job["exclusive"] = json!(true);
    let ([alone], [first]) = cluster.start_jobs_on(0, &gate, ["alone"], &[job]);
    cluster.runner(0).host().lose(Loss::ALL);
    gate.wait_for_attempt("ordinary", 2);
    assert!(is_running(ordinary_pid), "a node that is cut off works on at other jobs");
    let second = gate.wait_for_attempt("alone", 2);
    assert!(!is_running(first), "the first attempt has ended before the second one starts");
    assert!(is_running(second));
    cluster.runner(0).host().heal();
    cluster.wait_until_ready(0);
    wait_until("the stale attempt is stopped", || !is_running(ordinary_pid));
    gate.open();
    assert_eq!(cluster.wait_for_success(alone).result, Some(Gate::result("alone", 2)));
    assert_eq!(cluster.wait_for_success(ordinary).result, Some(Gate::result("ordinary", 2)));
}
