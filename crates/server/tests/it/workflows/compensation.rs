//! Sagas: what was done is undone, last first, and what cannot be undone is said.

use serde_json::{Value, json};

use super::{ended, endless, of, run, start, task, task_in};
use crate::common::{Server, text};

/// Writes a line to a file, which shows what was done in which order.
fn writes(file: &std::path::Path, word: &str) -> Value {
    json!({"process": {"command": ["sh", "-c", format!("echo {word} >> {}", file.display())]}})
}

fn step(file: &std::path::Path, word: &str, needs: Option<&str>) -> Value {
    let undo = json!({"run": writes(file, &format!("undo-{word}")), "sandbox": "none"});
    json!({"run": writes(file, word), "sandbox": "none", "needs": needs.into_iter().collect::<Vec<_>>(), "compensation": undo})
}

// FEATURES: D5
#[tokio::test]
async fn a_fatal_failure_undoes_what_was_done_in_the_opposite_order() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("done");
        let definition = of(json!({
            "a": step(&file, "a", None),
            "b": step(&file, "b", Some("a")),
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
async fn a_step_that_cannot_be_undone_is_told_and_the_rest_go_on() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("done");
    let stubborn = json!({"needs": "a", "run": {"echo": {"value": 1}},
        "compensation": {"run": {"echo": {"fail": "error"}}, "retry": 0}});
    let definition = of(json!({
        "a": step(&file, "a", None),
        "b": stubborn,
        "c": {"needs": "b", "run": {"echo": {"fail": "error"}}, "retry": 0, "on_failure": "compensate"},
    }));
    let workflow = run(&server, &definition).await;
    let rollback = &workflow["rollback"];
    assert_eq!(rollback["state"], "partially_rolled_back", "{workflow}");
    assert_eq!((&rollback["compensated"], &rollback["failed"]), (&json!(1), &json!(1)));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\nundo-a\n");
    assert_eq!(task(&workflow, "b")["compensation"]["state"], "failed");
    let letters = server.get("/v1/dlq").await.expect(200);
    let job = text(&task(&workflow, "b")["compensation"]["job"]);
    assert!(letters["items"].as_array().unwrap().iter().any(|letter| letter["id"] == job), "{letters}");
    server.metric_when("outlast_saga_compensations_total{outcome=\"failed\"}", 1).await;
}

// FEATURES: D5
#[tokio::test]
async fn a_cancelled_workflow_is_undone_where_that_is_asked_for() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    for (compensate, words) in [(false, "a\n"), (true, "a\nundo-a\n")] {
        let file = directory.path().join(format!("{compensate}"));
        let mut later = endless();
        later["needs"] = json!("a");
        let id = start(&server, &of(json!({"a": step(&file, "a", None), "b": later}))).await;
        task_in(&server, &id, "b", "running").await;
        server.post(&format!("/v1/workflows/{id}/cancel"), &json!({"compensate": compensate})).await.expect(200);
        let workflow = ended(&server, &id).await;
        assert_eq!(workflow["state"], "cancelled");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), words);
        assert_eq!(workflow["rollback"].is_null(), !compensate);
    }
}
