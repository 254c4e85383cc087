//! Result spill: large results are stored as blobs, retained while referenced, and scanned like all others.

use model::limits::TASK_RESULT_BYTES_MAX;
use serde_json::{Value, json};

use super::{of, run, start, task, task_in};
use crate::support::{Server, text};

/// A definition whose first task has a result of this many bytes as JSON.
fn large(bytes: usize) -> Value {
    json!({"name": "large", "tasks": {
        "big": {"run": {"echo": {"value": "x".repeat(bytes - 2)}}},
        "next": {"run": {"echo": {"value": "${tasks.big.result}"}}},
    }, "outputs": "${tasks.next.result}"})
}

// FEATURES: B1
#[tokio::test]
async fn a_large_result_is_spilled_to_a_blob() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let small = run(&server, &large(TASK_RESULT_BYTES_MAX)).await;
        assert_eq!(small["result"].as_str().unwrap().len(), TASK_RESULT_BYTES_MAX - 2, "stored inline");
        let bytes = TASK_RESULT_BYTES_MAX + 1;
        let workflow = run(&server, &large(bytes)).await;
        assert_eq!((&workflow["state"], &workflow["result"]["bytes"]), (&json!("succeeded"), &json!(bytes)));
        let blob = text(&workflow["result"]["blob"]);
        let content = server.get(&format!("/v1/blobs/{blob}")).await;
        assert_eq!(content.body.len(), bytes);
        assert_eq!(serde_json::from_slice::<String>(&content.body).unwrap(), "x".repeat(bytes - 2));
        let big = server.get(&format!("/v1/workflows/{}/tasks/big", text(&workflow["id"]))).await.expect(200);
        assert_eq!(big["result"], workflow["result"]);
    }
}

#[tokio::test]
async fn many_large_results_at_once_keep_their_order_and_do_not_block_others() {
    let server = Server::start().await;
    let value = "x".repeat(TASK_RESULT_BYTES_MAX);
    let definition = of(json!({
        "large": {"for_each": "${range(0, 20)}", "run": {"echo": {"value": format!("${{item}}{value}")}}},
        "small": {"for_each": "${range(0, 200)}", "run": {"echo": {"value": 1}}},
    }));
    let workflow = run(&server, &definition).await;
    assert_eq!((&workflow["state"], &workflow["items"]["succeeded"]), (&json!("succeeded"), &json!(220)));
    let id = text(&workflow["id"]);
    let mut blobs = std::collections::BTreeSet::new();
    for item in 0..20 {
        let shown = server.get(&format!("/v1/workflows/{id}/tasks/large?item={item}")).await.expect(200);
        blobs.insert(text(&shown["result"]["blob"]));
    }
    assert_eq!(blobs.len(), 20);
    assert_eq!(server.metric("outlast_runner_messages_gap_total").await, 0);
}

#[tokio::test]
async fn a_blob_referenced_by_a_workflow_is_not_garbage_collected() {
    let server = Server::with(|options| (options.collect_interval_ms, options.collect_grace_ms) = (20, 500)).await;
    let put = |content: &str| {
        crate::http::Request::post("/v1/blobs").header("content-type", "application/octet-stream").body(content)
    };
    let mut definition = large(TASK_RESULT_BYTES_MAX + 1);
    definition["tasks"]["hold"] = json!({"needs": "next", "wait_for": "go"});
    definition["inputs"] = json!({"file": "string"});
    let started = loop {
        // The blob may be collected before the start of the workflow that refers to it.
        let blob = text(&server.send(put("given")).await.expect(201)["id"]);
        let body = json!({"definition": definition, "inputs": {"file": blob}});
        let id = text(&server.post("/v1/workflows", &body).await.expect(201)["id"]);
        if server.get(&format!("/v1/blobs/{blob}")).await.status == 200 {
            break (blob, id);
        }
    };
    let (blob, id) = started;
    let waiting = task_in(&server, &id, "hold", "listening").await;
    let big = text(&task(&waiting, "big")["job"]);
    let spilled = text(&server.job(&big).await["result"]["blob"]);
    // Once an unreferenced blob is collected, the others have been checked too.
    for _ in 0..3 {
        let unreferenced = text(&server.send(put("stray")).await.expect(201)["id"]);
        let path = format!("/v1/blobs/{unreferenced}");
        let since = std::time::Instant::now();
        while server.get(&path).await.status == 200 {
            assert!(since.elapsed() < crate::http::DEADLINE, "the unreferenced blob is not collected");
            // A read renews the grace period of a blob: poll less often than that.
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        }
    }
    for referenced in [&blob, &spilled] {
        assert_eq!(server.get(&format!("/v1/blobs/{referenced}")).await.status, 200, "{referenced}");
    }
}

#[tokio::test]
async fn a_definition_that_refers_to_a_missing_blob_is_refused() {
    let server = Server::start().await;
    let missing = format!("blob:{:064}", 0);
    let definition = of(json!({"a": {"run": {"process": {"command": ["true"]}}, "inputs": {"f": missing}}}));
    let problem = server.post("/v1/workflows", &json!({"definition": definition})).await.refused(409, "blob_missing");
    assert_eq!(problem["blobs"], json!([missing]));
    // Blob references in inputs are not checked.
    let definition =
        json!({"name": "x", "inputs": {"f": "string"}, "tasks": {"a": {"run": {"echo": {"value": "${inputs.f}"}}}}});
    server.post("/v1/workflows", &json!({"definition": definition, "inputs": {"f": missing}})).await.expect(201);
    let id = start(&server, &of(json!({"a": {"delay": "1ms"}}))).await;
    super::ended(&server, &id).await;
}

// FEATURES: D3
#[tokio::test]
async fn a_secret_in_a_large_result_is_found() {
    let server = Server::with(|options| {
        let mut topic = server::TopicOptions::default();
        topic.output.scan = true;
        topic.output.hold_until_scanned = true;
        options.topics.insert("guarded".to_owned(), topic);
    })
    .await;
    let secret = format!("AKIA{}", "QWERTYUIOPASDFGH");
    let value = format!("{} aws_key = {secret} {}", "x ".repeat(TASK_RESULT_BYTES_MAX / 2), "y");
    let leak = json!({"topic": "guarded", "run": {"echo": {"value": value}}, "retry": 0});
    let workflow = run(&server, &of(json!({"leak": leak}))).await;
    let job = server.job(&text(&task(&workflow, "leak")["job"])).await;
    assert_eq!(job["state"], "quarantined", "{}", job["reason"]);
    assert_eq!(workflow["state"], "failed");
    let shown = server.get(&format!("/v1/workflows/{}/tasks/leak", text(&workflow["id"]))).await.expect(200);
    assert!(shown.get("result").is_none(), "{shown}");
}
