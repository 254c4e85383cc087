//! Starting workflows: JSON, YAML, inputs, idempotency keys, waiting for the end.

use serde_json::{Value, json};

use super::{ended, endless, of, says, start, states, task};
use crate::http::{Reply, Request};
use crate::support::{Api, Server, text};

const GREETING: &str = "
name: greeting
inputs:
  name: string
  mark: {type: string, default: '!'}
tasks:
  compose:
    run: {echo: {value: 'Hello ${inputs.name}${inputs.mark}'}}
  send:
    run: {echo: {value: '${tasks.compose.result}'}}
outputs: {text: '${tasks.send.result}'}
";

// FEATURES: B1
#[tokio::test]
async fn a_workflow_runs_its_tasks_in_order_and_returns_a_result() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let body = json!({"yaml": GREETING, "inputs": {"name": "you"}, "labels": {"team": "a"}, "tenant": "acme"});
        let reply = server.send(Request::post("/v1/workflows").header("outlast-actor", "ann").json(&body)).await;
        let started = reply.expect(201);
        let id = text(&started["id"]);
        assert!(id.starts_with("wf_"));
        assert_eq!(reply.header("location"), Some(format!("/v1/workflows/{id}").as_str()));
        assert_eq!((&started["name"], &started["tasks_total"]), (&json!("greeting"), &json!(2)));
        assert_eq!(started["inputs"], json!({"name": "you", "mark": "!"}));
        assert!(started.get("tasks").is_none() && started.get("deduplicated").is_none(), "{started}");

        let workflow = ended(&server, &id).await;
        assert_eq!((&workflow["state"], &workflow["reason"]), (&json!("succeeded"), &Value::Null));
        assert_eq!(workflow["result"], json!({"text": "Hello you!"}));
        assert_eq!((&workflow["tenant"], &workflow["submitter"]), (&json!("acme"), &json!("ann")));
        assert_eq!(workflow["labels"], json!({"team": "a"}));
        assert_eq!((&workflow["counts"]["succeeded"], &workflow["counts"]["waiting"]), (&json!(2), &json!(0)));
        assert_eq!((&workflow["usage"]["jobs"], &workflow["usage"]["attempts"]), (&json!(2), &json!(2)));
        assert_eq!(task(&workflow, "send")["needs"], json!(["compose"]));
        let (compose, send) = (task(&workflow, "compose"), task(&workflow, "send"));
        assert!(text(&send["began_at"]) >= text(&compose["ended_at"]), "{workflow}");
    }
}

// FEATURES: B1
#[tokio::test]
async fn a_definition_may_be_yaml() {
    let server = Server::start().await;
    let send = |kind: &str, query: &str| Request::post(format!("/v1/workflows{query}")).header("content-type", kind);
    for kind in ["application/yaml", "application/x-yaml; charset=utf-8"] {
        let query = "?wait_ms=20000&inputs=%7B%22name%22%3A%22you%22%2C%22mark%22%3A%22%3F%22%7D&tenant=acme";
        let workflow = server.send(send(kind, query).body(GREETING)).await.expect(201);
        assert_eq!((&workflow["state"], &workflow["tenant"]), (&json!("succeeded"), &json!("acme")));
        assert_eq!(workflow["result"]["text"], "Hello you?");
    }
    server.send(send("application/yaml", "?inputs=nonsense").body(GREETING)).await.refused(400, "invalid_parameter");
    server.send(send("text/plain", "").body(GREETING)).await.refused(415, "unsupported_media_type");
    server.send(send("application/x-ndjson", "").body("{}")).await.refused(415, "unsupported_media_type");
    let both = Request::post("/v1/workflows?tenant=x").json(&json!({"definition": of(json!({"a": says(1)}))}));
    server.send(both).await.refused(400, "invalid_parameter");
}

#[tokio::test]
async fn a_start_may_wait_for_the_end_up_to_a_time_limit() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let quick = json!({"definition": of(json!({"a": says("done"), "b": {"delay": "50ms", "needs": "a"}}))});
        let workflow = server.post("/v1/workflows?wait_ms=20000", &quick).await.expect(201);
        assert_eq!(workflow["state"], "succeeded");
        let nothing = json!({"definition": of(json!({"a": {"when": "${false}", "run": "true"}}))});
        let workflow = server.post("/v1/workflows?wait_ms=20000", &nothing).await.expect(201);
        assert_eq!((&workflow["state"], &workflow["counts"]["skipped"]), (&json!("succeeded"), &json!(1)));
        let slow = json!({"definition": of(json!({"a": endless()}))});
        let workflow = server.post("/v1/workflows?wait_ms=20", &slow).await.expect(201);
        assert_eq!(workflow["state"], "running");
        let id = text(&workflow["id"]);
        let shown = server.get(&format!("/v1/workflows/{id}?wait_ms=20&tasks=false")).await.expect(200);
        assert_eq!((&shown["state"], shown.get("tasks")), (&json!("running"), None));
        server.get(&format!("/v1/workflows/{id}?wait_ms=x")).await.refused(400, "invalid_parameter");
        server.get(&format!("/v1/workflows/{id}?tasks=perhaps")).await.refused(400, "invalid_parameter");
    }
}

async fn keyed(api: &Api, key: &str, body: &Value) -> Reply {
    api.send(Request::post("/v1/workflows").header("idempotency-key", key).json(body)).await
}

// FEATURES: B1
#[tokio::test]
async fn an_idempotency_key_starts_one_workflow() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let body = json!({"definition": of(json!({"a": {"delay": "100ms"}}))});
        let first = keyed(&server, "k", &body).await.expect(201);
        for _ in 0..2 {
            let again = keyed(&server, "k", &body).await.expect(200);
            assert_eq!((&again["id"], &again["deduplicated"]), (&first["id"], &json!(true)));
            let waiting = Request::post("/v1/workflows?wait_ms=20000").header("idempotency-key", "k").json(&body);
            assert_eq!(server.send(waiting).await.expect(200)["state"], "succeeded");
            let inside = json!({"definition": body["definition"], "idempotency_key": "k"});
            assert_eq!(server.post("/v1/workflows", &inside).await.expect(200)["id"], first["id"]);
            let other = json!({"definition": of(json!({"b": says(1)}))});
            keyed(&server, "k", &other).await.refused(409, "idempotency_conflict");
            server.restart().await;
        }
        // Jobs have their own key space.
        let job = Request::post("/v1/jobs").header("idempotency-key", "k").json(&crate::support::echo(1));
        server.send(job).await.expect(201);
        let id = text(&first["id"]);
        assert_eq!(server.listed("/v1/workflows", 10).await, std::slice::from_ref(&id));
        assert_eq!(server.delete(&format!("/v1/workflows/{id}")).await.status, 204);
        keyed(&server, "k", &body).await.refused(409, "idempotency_gone");
    }
}

#[tokio::test]
async fn ten_concurrent_starts_with_one_key_start_one_workflow() {
    let server = Server::with_shards(4).await;
    let api = server.api();
    let body = json!({"definition": of(json!({"a": endless()}))});
    let sent: Vec<_> = (0..10)
        .map(|_| {
            let body = body.clone();
            tokio::spawn(async move { keyed(&api, "k", &body).await })
        })
        .collect();
    let mut created = 0;
    for reply in sent {
        created += usize::from(reply.await.unwrap().status == 201);
    }
    assert_eq!((created, server.listed("/v1/workflows", 100).await.len()), (1, 1));
}

// FEATURES: B1
#[tokio::test]
async fn jobs_of_a_workflow_are_in_its_queue() {
    let server = Server::with_shards(4).await;
    let queue = server.create_queue(&json!({"tag": "w"})).await;
    let started = async |reference: &Value| {
        let body = json!({"definition": of(json!({"a": endless()})), "queue": reference});
        server.post("/v1/workflows", &body).await
    };
    let workflow = started(&queue["token"]).await.expect(201);
    assert_eq!(workflow["queue"], queue["id"]);
    let id = text(&workflow["id"]);
    super::task_in(&server, &id, "a", "running").await;
    let jobs = server.get(&format!("/v1/jobs?queue={}", text(&queue["id"]))).await.expect(200);
    let origin = &jobs["items"][0]["origin"];
    assert_eq!((&origin["workflow"], &origin["task"]), (&json!(id), &json!("a")), "{jobs}");
    assert_eq!((&origin["item"], &origin["compensation"]), (&Value::Null, &json!(false)));
    started(&json!("q_0000000000000")).await.refused(404, "unknown_queue");
    server.act(&format!("/v1/queues/{}/drain", text(&queue["id"]))).await.expect(200);
    started(&queue["id"]).await.refused(409, "queue_closed");
}

#[tokio::test]
async fn the_same_definition_can_be_started_many_times() {
    let server = Server::with_shards(4).await;
    let definition = of(json!({"a": says(1), "b": {"needs": "a", "run": {"echo": {"value": 2}}}}));
    let api = server.api();
    let started: Vec<_> = (0..50)
        .map(|_| {
            let definition = definition.clone();
            tokio::spawn(async move { super::run(&api, &definition).await })
        })
        .collect();
    for workflow in started {
        assert_eq!(states(&workflow.await.unwrap()), json!({"a": "succeeded", "b": "succeeded"}));
    }
    server.metric_when("outlast_workflows_ended_total{state=\"succeeded\"}", 50).await;
    server.metric_when("outlast_workflow_tasks_total{state=\"succeeded\"}", 100).await;
    server.metric_when("outlast_workflows_live", 0).await;
}

// FEATURES: B1
#[tokio::test]
async fn a_definition_can_be_validated_without_a_start() {
    let server = Server::start().await;
    let check = async |body: Value| server.post("/v1/workflows/validate", &body).await;
    let valid = check(json!({"yaml": GREETING})).await.expect(200);
    assert_eq!(valid, json!({"valid": true, "name": "greeting", "tasks": 2, "warnings": []}));
    check(json!({"yaml": GREETING, "inputs": {"name": "x"}})).await.expect(200);
    check(json!({"yaml": GREETING, "inputs": {}})).await.refused(400, "invalid_inputs");
    check(json!({"yaml": "name: x"})).await.refused(400, "invalid_definition");
    assert!(server.listed("/v1/workflows", 10).await.is_empty());
}

#[tokio::test]
async fn the_definition_can_be_read_drawn_and_started_again() {
    let server = Server::start().await;
    let id =
        start(&server, &of(json!({"first": says(1), "second": {"needs": "first", "run": {"echo": {"value": 2}}}})))
            .await;
    ended(&server, &id).await;
    let definition = server.get(&format!("/v1/workflows/{id}/definition")).await.expect(200);
    assert_eq!(definition["name"], "example");
    assert_eq!(super::run(&server, &definition).await["state"], "succeeded");
    let svg = server.get(&format!("/v1/workflows/{id}/graph")).await;
    assert_eq!((svg.status, svg.header("content-type")), (200, Some("image/svg+xml")));
    assert!(svg.text().contains("second") && svg.text().contains("succeeded"), "{}", svg.text());
    let mermaid = server.get(&format!("/v1/workflows/{id}/graph?format=mermaid")).await;
    assert!(mermaid.text().starts_with("flowchart"), "{}", mermaid.text());
    server.get(&format!("/v1/workflows/{id}/graph?format=png")).await.refused(400, "invalid_parameter");
    let schema = server.get("/v1/schemas/workflow").await.expect(200);
    assert!(schema["$schema"].is_string(), "{schema}");
}
