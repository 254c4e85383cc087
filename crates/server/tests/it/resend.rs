//! Resent requests: executed once, and answered as the first time. The generation that changes with a restart.

use std::fs;

use serde_json::{Value, json};

use crate::http::{Reply, Request};
use crate::support::{Api, Server, echo, endless, process, shell, text, with};

fn id(number: u64) -> String {
    format!("{number:032x}")
}

fn request(number: u64, path: &str, body: &Value) -> Request {
    Request::post(path).header("outlast-request-id", &id(number)).json(body)
}

async fn send(api: &Api, number: u64, path: &str, body: &Value) -> Reply {
    api.send(request(number, path, body)).await
}

async fn act(api: &Api, number: u64, path: &str) -> Reply {
    api.send(Request::post(path).header("outlast-request-id", &id(number))).await
}

fn is_replayed(reply: &Reply) -> bool {
    reply.header("outlast-replayed") == Some("true")
}

// FEATURES: A14
#[tokio::test]
async fn a_resent_request_gets_the_first_answer_and_is_executed_once() {
    let server = Server::with_shards(4).await;
    let first = send(&server, 1, "/v1/queues", &json!({"tag": "a"})).await;
    let queue = first.expect(201);
    assert!(!is_replayed(&first) && queue["token"].is_string(), "{queue}");
    for _ in 0..3 {
        let again = send(&server, 1, "/v1/queues", &json!({"tag": "a"})).await;
        assert_eq!(again.expect(201), queue);
        assert!(is_replayed(&again));
        for name in ["content-type", "location"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
    }
    assert_eq!(server.listed("/v1/queues", 10).await.len(), 1);

    let failed = server.run(&with(shell("exit 1"), json!({"max_retries": 0}))).await;
    let retry = format!("/v1/jobs/{}/retry", text(&failed["id"]));
    let problem = act(&server, 2, &retry).await.refused(409, "retries_used_up");
    let again = act(&server, 2, &retry).await;
    assert_eq!((again.refused(409, "retries_used_up"), is_replayed(&again)), (problem, true));

    let removed = Request::delete(format!("/v1/jobs/{}", text(&failed["id"]))).header("outlast-request-id", &id(3));
    assert_eq!(server.send(removed.clone()).await.status, 204);
    let again = server.send(removed).await;
    assert_eq!((again.status, is_replayed(&again)), (204, true), "not 404");
}

// FEATURES: A14
#[tokio::test]
async fn an_id_belongs_to_one_request() {
    let server = Server::start().await;
    let queue = text(&send(&server, 1, "/v1/queues", &json!({"tag": "a"})).await.expect(201)["id"]);
    send(&server, 1, "/v1/queues", &json!({"tag": "b"})).await.refused(409, "request_id_conflict");
    send(&server, 1, "/v1/jobs", &json!({"tag": "a"})).await.refused(409, "request_id_conflict");
    send(&server, 1, "/v1/jobs?wait_ms=1", &json!({"tag": "a"})).await.refused(409, "request_id_conflict");
    let remove = Request::delete(format!("/v1/queues/{queue}")).header("outlast-request-id", &id(1));
    let problem = server.send(remove).await.refused(409, "request_id_conflict");
    assert_eq!(problem["field"], "Outlast-Request-Id");
    let other_token = request(1, "/v1/queues", &json!({"tag": "a"})).header("authorization", "Bearer other");
    server.send(other_token).await.refused(409, "request_id_conflict");
    assert_eq!(server.listed("/v1/queues", 10).await, [queue]);
    for malformed in ["", "1", "+0000000000000000000000000000001", "g0000000000000000000000000000001"] {
        let request = Request::post("/v1/queues").header("outlast-request-id", malformed).json(&json!({}));
        server.send(request).await.refused(400, "invalid_field");
    }
}

// FEATURES: A14
#[tokio::test]
async fn a_resend_waits_for_the_first_request_even_if_its_client_is_gone() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let job = process(&["sh", "-c", &format!("while [ ! -e {} ]; do sleep 0.02; done; echo done", gate.display())]);
    let path = "/v1/jobs?wait_ms=25000";
    let first = tokio::spawn({
        let (api, job) = (server.api(), job.clone());
        async move { send(&api, 1, path, &job).await }
    });
    let listed = server.seen("/v1/jobs", |page| page["items"][0]["state"] == "running").await;
    // Ends the connection while the request is in progress.
    first.abort();
    assert!(first.await.is_err());
    let resends: Vec<_> = (0..2)
        .map(|_| {
            let (api, job) = (server.api(), job.clone());
            tokio::spawn(async move { send(&api, 1, path, &job).await })
        })
        .collect();
    fs::write(&gate, "").unwrap();
    for resend in resends {
        let resend = resend.await.unwrap();
        let ended = resend.expect(201);
        assert_eq!((&ended["id"], &ended["state"]), (&listed["items"][0]["id"], &json!("succeeded")));
        assert!(is_replayed(&resend));
    }
    server.works_with(1).await;
}

#[tokio::test]
async fn a_request_that_was_refused_for_now_is_executed_when_it_is_sent_again() {
    let server = Server::with(|options| options.live_jobs_max = 1).await;
    let live = server.submit(&endless()).await;
    send(&server, 1, "/v1/jobs", &echo(1)).await.refused(429, "too_many_jobs");
    server.act(&format!("/v1/jobs/{live}/cancel")).await.expect(200);
    server.ended(&live).await;
    let again = send(&server, 1, "/v1/jobs", &echo(1)).await;
    again.expect(201);
    assert!(!is_replayed(&again));
}

// FEATURES: A14
#[tokio::test]
async fn large_and_other_bodies_are_not_covered_and_large_answers_not_kept() {
    let server = Server::start().await;
    let lines = || {
        let request = Request::post("/v1/jobs").header("outlast-request-id", &id(1));
        request.header("content-type", "application/x-ndjson").body(format!("{}\n", echo(1)))
    };
    for _ in 0..2 {
        assert!(!is_replayed(&server.send(lines()).await));
    }
    let large = echo("x".repeat(1024 * 1024));
    for _ in 0..2 {
        send(&server, 2, "/v1/jobs", &large).await.expect(201);
    }
    server.works_with(4).await;
    let batch = json!({"jobs": vec![echo(1); 996]});
    let first = send(&server, 3, "/v1/jobs", &batch).await;
    assert!(first.body.len() > 64 * 1024);
    assert_eq!(first.expect(200)["results"].as_array().unwrap().len(), 996);
    let problem = send(&server, 3, "/v1/jobs", &batch).await.refused(503, "answer_lost");
    assert!(text(&problem["detail"]).contains("was executed"), "{problem}");
    server.works_with(1000).await;
}

// FEATURES: A14
#[tokio::test]
async fn every_response_has_the_generation_which_changes_with_a_restart() {
    let mut server = Server::start().await;
    let generation = async |server: &Server| {
        let mut seen = Vec::new();
        for path in ["/healthz", "/v1/jobs", "/v1/jobs/job_0000000000000", "/nothing"] {
            seen.push(server.get(path).await.header("outlast-generation").unwrap().to_owned());
        }
        let foreign = server.send(Request::get("/healthz").header("host", "evil.example")).await;
        seen.push(foreign.header("outlast-generation").unwrap().to_owned());
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.remove(0)
    };
    let first = generation(&server).await;
    let node = server.get("/v1/nodes").await.expect(200)["items"][0].clone();
    assert_eq!(first, format!("{}.{}", text(&node["id"]), node["incarnation"]));
    let conditional = |number: u64| request(number, "/v1/queues", &json!({})).header("outlast-if-generation", &first);
    let queue = server.send(conditional(1)).await.expect(201);
    server.restart().await;
    assert_ne!(generation(&server).await, first);
    // The answer is forgotten, so that only the condition keeps the request from being executed twice.
    let problem = server.send(conditional(1)).await.refused(412, "other_generation");
    assert_eq!(problem["field"], "Outlast-If-Generation");
    assert_eq!(server.listed("/v1/queues", 10).await, [text(&queue["id"])]);
    let second = generation(&server).await;
    let again = request(1, "/v1/queues", &json!({})).header("outlast-if-generation", &second);
    server.send(again).await.expect(201);
    assert_eq!(server.listed("/v1/queues", 10).await.len(), 2);
}
