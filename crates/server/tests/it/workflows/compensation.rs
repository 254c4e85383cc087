//! Sagas: succeeded tasks are compensated, last first, and failed compensations are reported.

use serde_json::{Value, json};

use super::{ended, endless, of, run, start, task, task_in};
use crate::support::{Server, text};

/// Appends a line to a file. The file shows the order of execution.
fn append(file: &std::path::Path, line: &str) -> Value {
    json!({"process": {"command": ["sh", "-c", format!("echo {line} >> {}", file.display())]}})
}

fn saga_task(file: &std::path::Path, line: &str, needs: Option<&str>) -> Value {
    let compensation = json!({"run": append(file, &format!("undo-{line}")), "sandbox": "none"});
    json!({"run": append(file, line), "sandbox": "none", "needs": needs.into_iter().collect::<Vec<_>>(), "compensation": compensation})
}

// FEATURES: D5
#[tokio::test]
async fn a_fatal_failure_compensates_succeeded_tasks_in_reverse_order() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("done");
        let definition = of(json!({
            "a": saga_task(&file, "a", None),
            "b": saga_task(&file, "b", Some("a")),
            "c": {"needs": "b", "run": {"echo": {"fail": "fatal"}}},
        }));
        let workflow = run(&server, &definition).await;
        assert_eq!(workflow["state"], "failed");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\nb\nundo-b\nundo-a\n");
        let rollback = &workflow["rollback"];
        assert_eq!((&rollback["state"], &rollback["total"]), (&json!("rolled_back"), &json!(2)), "{workflow}");
        assert_eq!((&rollback["compensated"], &rollback["failed"]), (&json!(2), &json!(0)));
        let compensated = &task(&workflow, "a")["compensation"];
        assert_eq!(compensated["state"], "done");
        let job = server.job(&text(&compensated["job"])).await;
        assert_eq!((&job["priority"], &job["labels"]["saga_compensation"]), (&json!("critical"), &json!("true")));
        assert_eq!((&job["origin"]["task"], &job["origin"]["compensation"]), (&json!("a"), &json!(true)));
        server.metric_when("outlast_saga_rollbacks_total", 1).await;
        server.metric_when("outlast_saga_compensations_total{outcome=\"done\"}", 2).await;
        server.metric_when("outlast_saga_active", 0).await;
    }
}

// FEATURES: D5
#[tokio::test]
async fn a_failed_compensation_is_reported_and_the_rollback_continues() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("done");
    let failing_compensation = json!({"needs": "a", "run": {"echo": {"value": 1}},
        "compensation": {"run": {"echo": {"fail": "error"}}, "retry": 0}});
    let definition = of(json!({
        "a": saga_task(&file, "a", None),
        "b": failing_compensation,
        "c": {"needs": "b", "run": {"echo": {"fail": "error"}}, "retry": 0, "on_failure": "compensate"},
    }));
    let workflow = run(&server, &definition).await;
    let rollback = &workflow["rollback"];
    assert_eq!(rollback["state"], "partially_rolled_back", "{workflow}");
    assert_eq!((&rollback["compensated"], &rollback["failed"]), (&json!(1), &json!(1)));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\nundo-a\n");
    assert_eq!(task(&workflow, "b")["compensation"]["state"], "failed");
    let dead_letters = server.get("/v1/dlq").await.expect(200);
    let job = text(&task(&workflow, "b")["compensation"]["job"]);
    assert!(dead_letters["items"].as_array().unwrap().iter().any(|entry| entry["id"] == job), "{dead_letters}");
    server.metric_when("outlast_saga_compensations_total{outcome=\"failed\"}", 1).await;
}

// FEATURES: D5
#[tokio::test]
async fn a_cancelled_workflow_is_compensated_on_request() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    for (compensate, expected) in [(false, "a\n"), (true, "a\nundo-a\n")] {
        let file = directory.path().join(format!("{compensate}"));
        let mut later = endless();
        later["needs"] = json!("a");
        let id = start(&server, &of(json!({"a": saga_task(&file, "a", None), "b": later}))).await;
        task_in(&server, &id, "b", "running").await;
        server.post(&format!("/v1/workflows/{id}/cancel"), &json!({"compensate": compensate})).await.expect(200);
        let workflow = ended(&server, &id).await;
        assert_eq!(workflow["state"], "cancelled");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        assert_eq!(workflow["rollback"].is_null(), !compensate);
    }
}
