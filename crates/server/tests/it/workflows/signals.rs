//! Signals: before a task waits for them, while it waits, and after the end.

use serde_json::{Value, json};

use super::{ended, of, run, says, start, task, task_in};
use crate::http::Request;
use crate::support::{Server, text};

// FEATURES: B1
#[tokio::test]
async fn a_signal_is_delivered_to_the_task_that_waits_for_it() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let definition =
            json!({"name": "s", "tasks": {"hear": {"wait_for": "news"}}, "outputs": "${tasks.hear.result}"});
        let id = start(&server, &definition).await;
        task_in(&server, &id, "hear", "listening").await;
        let path = format!("/v1/workflows/{id}/signals/news");
        let answer = server.post(&path, &json!({"all": ["is", "well"]})).await.expect(200);
        assert_eq!(answer, json!({"accepted": true}));
        assert_eq!(ended(&server, &id).await["result"], json!({"all": ["is", "well"]}));
    }
}

// FEATURES: B1
#[tokio::test]
async fn an_early_signal_is_retained_across_a_restart() {
    let mut server = Server::start().await;
    let definition = json!({"name": "s", "tasks": {
        "first": {"wait_for": "one"},
        "second": {"needs": "first", "wait_for": "two"},
    }, "outputs": "${tasks.second.result}"});
    let id = start(&server, &definition).await;
    task_in(&server, &id, "first", "listening").await;
    server.act(&format!("/v1/workflows/{id}/signals/two")).await.expect(200);
    server.restart().await;
    server.post(&format!("/v1/workflows/{id}/signals/one"), &json!(1)).await.expect(200);
    let workflow = ended(&server, &id).await;
    assert_eq!((&workflow["state"], &workflow["result"]), (&json!("succeeded"), &Value::Null));
    assert_eq!(task(&workflow, "second")["state"], "succeeded");
}

#[tokio::test]
async fn a_signal_to_a_terminal_workflow_is_refused() {
    let server = Server::start().await;
    let id = text(&run(&server, &of(json!({"a": says(1)}))).await["id"]);
    let problem = server.act(&format!("/v1/workflows/{id}/signals/news")).await.refused(409, "workflow_state");
    assert!(text(&problem["detail"]).contains("succeeded"), "{problem}");
    server.act("/v1/workflows/wf_0000000000001/signals/news").await.refused(404, "unknown_workflow");
}

#[tokio::test]
async fn size_name_and_number_of_signals_are_limited() {
    let server = Server::start().await;
    let id = start(&server, &of(json!({"a": {"wait_for": "never"}}))).await;
    let path = format!("/v1/workflows/{id}/signals/other");
    let sized = |bytes: usize| Value::String("x".repeat(bytes - 2));
    server.post(&path, &sized(model::limits::SIGNAL_BYTES_MAX)).await.expect(200);
    server.post(&path, &sized(model::limits::SIGNAL_BYTES_MAX + 1)).await.refused(413, "body_too_large");
    let text_body = Request::post(&path).header("content-type", "text/plain").body("x");
    server.send(text_body).await.refused(415, "unsupported_media_type");
    let broken = Request::post(&path).header("content-type", "application/json").body("{");
    server.send(broken).await.refused(400, "invalid_json");
    let long = format!("/v1/workflows/{id}/signals/{}", "n".repeat(65));
    server.act(&long).await.refused(400, "invalid_field");
    for _ in 1..model::limits::SIGNALS_MAX {
        server.act(&path).await.expect(200);
    }
    server.act(&path).await.refused(429, "too_many_signals");
}
