//! Job submission, waiting, results and histories.

use serde_json::json;

use crate::http::Request;
use crate::support::{Server, echo, endless, is_terminal, states, text, with};

// FEATURES: C12, B10
#[tokio::test]
async fn a_job_is_accepted_runs_and_has_a_result() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let reply = server.post("/v1/jobs", &echo(json!({"a": [1, "zwei", null]}))).await;
        let accepted = reply.expect(201);
        let id = text(&accepted["id"]);
        assert!(id.starts_with("job_"));
        assert_eq!(reply.header("location"), Some(format!("/v1/jobs/{id}").as_str()));
        assert!(accepted["seq"].as_u64().is_some_and(|seq| seq >= 1));
        assert!(accepted.get("deduplicated").is_none());

        let job = server.ended(&id).await;
        assert_eq!(job["state"], "succeeded");
        assert_eq!(job["result"], json!({"a": [1, "zwei", null]}));
        assert_eq!((&job["attempt"], &job["retries"]), (&json!(1), &json!(0)));
        let result = server.get(&format!("/v1/jobs/{id}/result")).await;
        assert_eq!(result.header("content-type"), Some("application/json"));
        assert_eq!(result.expect(200), json!({"a": [1, "zwei", null]}));
    }
}

// FEATURES: C1
#[tokio::test]
async fn each_state_is_recorded_once_in_order_and_with_its_time() {
    let server = Server::start().await;
    let job = server.run(&echo(1)).await;
    assert_eq!(states(&job), ["pending", "scheduled", "dispatched", "running", "succeeded"]);
    let times: Vec<String> = job["states"].as_array().unwrap().iter().map(|entry| text(&entry["at"])).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(times[0], text(&job["created_at"]));
    assert!(times.iter().all(|time| time.ends_with('Z')), "{times:?}");
}

// FEATURES: C1
#[tokio::test]
async fn jobs_are_numbered_within_their_queue() {
    let server = Server::with_shards(4).await;
    let queue = text(&server.create_queue(&json!({})).await["id"]);
    let job = with(echo(1), json!({"queue": queue}));
    for number in 1..=5 {
        assert_eq!(server.post("/v1/jobs", &job).await.expect(201)["seq"], number);
    }
}

// FEATURES: C12
#[tokio::test]
async fn batch_results_are_in_order_and_each_job_is_accepted_or_refused_separately() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let queue = text(&server.create_queue(&json!({})).await["id"]);
        let batch = json!({"jobs": [
            echo("first"),
            {"run": {"echo": {}}, "tpoic": "x"},
            with(echo("third"), json!({"queue": queue})),
            {"run": {"echo": {"delay_ms": -1}}},
            with(echo("fifth"), json!({"idempotency_key": "five"})),
            with(echo("sixth"), json!({"queue": "q_0000000000000"})),
            17,
            with(echo("eighth"), json!({"idempotency_key": "five"})),
        ]});
        let answer = server.post("/v1/jobs", &batch).await.expect(200);
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.len(), 8);
        for (index, value) in [(0, "first"), (2, "third"), (4, "fifth")] {
            let job = server.ended(&text(&results[index]["id"])).await;
            assert_eq!(job["result"], value);
        }
        let code = |index: usize| text(&results[index]["error"]["code"]);
        assert_eq!(code(1), "unknown_field");
        assert_eq!(code(3), "invalid_json");
        assert_eq!(results[3]["error"]["field"], "run.echo.delay_ms");
        assert_eq!(code(5), "unknown_queue");
        assert_eq!(code(6), "invalid_json");
        assert_eq!(code(7), "idempotency_conflict");
        server.works_with(3).await;
    }
}

#[tokio::test]
async fn lines_of_ndjson_are_a_batch() {
    let server = Server::with_shards(4).await;
    let lines = format!("{}\n\n  {}\r\nnonsense\n{}", echo("a"), echo("b"), echo("c"));
    let request = Request::post("/v1/jobs").header("content-type", "application/x-ndjson").body(lines);
    let answer = server.send(request).await.expect(200);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    assert_eq!(results[2]["error"]["code"], "invalid_json");
    for (index, value) in [(0, "a"), (1, "b"), (3, "c")] {
        assert_eq!(server.ended(&text(&results[index]["id"])).await["result"], value);
    }
}

#[tokio::test]
async fn an_empty_batch_is_accepted_with_any_whitespace() {
    let server = Server::start().await;
    for body in [r#"{"jobs":[]}"#, " {\n \"jobs\" : [ ] }"] {
        let request = Request::post("/v1/jobs").header("content-type", "application/json; charset=utf-8").body(body);
        assert_eq!(server.send(request).await.expect(200), json!({"results": []}));
    }
}

#[tokio::test]
async fn the_largest_batch_is_accepted() {
    let server = Server::with_shards(4).await;
    let jobs = vec![echo(1); model::limits::BATCH_JOBS_MAX];
    let answer = server.post("/v1/jobs", &json!({"jobs": jobs})).await.expect(200);
    assert_eq!(answer["results"].as_array().unwrap().len(), model::limits::BATCH_JOBS_MAX);
    server.works_with(10_000).await;
}

#[tokio::test]
async fn a_submission_can_wait_for_the_job_to_end() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let reply = server.post("/v1/jobs?wait_ms=20000", &with(echo("done"), json!({"topic": "t"}))).await;
        let job = reply.expect(201);
        assert_eq!((&job["state"], &job["result"], &job["topic"]), (&json!("succeeded"), &json!("done"), &json!("t")));
        assert!(reply.header("location").is_some_and(|location| location.ends_with(&text(&job["id"]))));
    }
}

#[tokio::test]
async fn a_wait_returns_the_live_job_when_its_time_is_up() {
    let server = Server::start().await;
    let job = server.post("/v1/jobs?wait_ms=20", &endless()).await.expect(201);
    assert!(!is_terminal(&job), "{job}");
    let id = text(&job["id"]);
    let job = server.get(&format!("/v1/jobs/{id}?wait_ms=20")).await.expect(200);
    assert!(!is_terminal(&job), "{job}");
}

#[tokio::test]
async fn all_clients_waiting_for_a_job_get_its_terminal_state() {
    let server = Server::with_shards(4).await;
    let id = server.submit(&endless()).await;
    let api = server.api();
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let id = id.clone();
            tokio::spawn(async move { api.ended(&id).await })
        })
        .collect();
    server.job_in(&id, "running").await;
    server.act(&format!("/v1/jobs/{id}/cancel")).await.expect(200);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap()["state"], "cancelled");
    }
}

#[tokio::test]
async fn results_of_live_jobs_and_requests_for_unknown_jobs_are_refused() {
    let server = Server::start().await;
    let id = server.submit(&endless()).await;
    server.get(&format!("/v1/jobs/{id}/result")).await.refused(409, "not_terminal");
    let unknown = "job_0000000000001";
    for path in ["", "/result", "/history", "/logs"] {
        server.get(&format!("/v1/jobs/{unknown}{path}")).await.refused(404, "unknown_job");
    }
    for action in ["cancel", "retry", "retract"] {
        server.act(&format!("/v1/jobs/{unknown}/{action}")).await.refused(404, "unknown_job");
    }
    server.delete(&format!("/v1/jobs/{unknown}")).await.refused(404, "unknown_job");
}

// FEATURES: C12
#[tokio::test]
async fn the_history_lists_each_attempt() {
    let server = Server::start().await;
    let job = server.run(&json!({"run": {"echo": {"fail": "error"}}, "max_retries": 2})).await;
    let history = server.get(&format!("/v1/jobs/{}/history", text(&job["id"]))).await.expect(200);
    assert_eq!(history["state"], "failed");
    assert_eq!(history["states"], job["states"]);
    let attempts = history["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 3);
    for (index, attempt) in attempts.iter().enumerate() {
        assert_eq!(attempt["attempt"], index + 1);
        assert_eq!(attempt["end"], "error");
        let times = ["dispatched_at", "started_at", "ended_at"].map(|name| text(&attempt[name]));
        assert!(times.is_sorted(), "{times:?}");
    }
    assert_eq!((&history["states_dropped"], &history["attempts_dropped"]), (&json!(0), &json!(0)));
}

// FEATURES: B10
#[tokio::test]
async fn echo_fails_with_the_requested_error() {
    let server = Server::start().await;
    let job = server.run(&json!({"run": {"echo": {"fail": "error"}}, "max_retries": 1})).await;
    assert_eq!((&job["state"], &job["reason"]), (&json!("failed"), &json!("retries_exhausted")));
    assert_eq!((&job["attempt"], &job["retries"]), (&json!(2), &json!(1)));
    let job = server.run(&json!({"run": {"echo": {"fail": "fatal", "delay_ms": 1}}})).await;
    assert_eq!((&job["state"], &job["reason"]), (&json!("failed"), &json!("fatal")));
    assert_eq!((&job["attempt"], &job["retries"]), (&json!(1), &json!(0)));
    assert!(text(&job["message"]).contains("failed as requested"), "{job}");
    assert_eq!(server.get(&format!("/v1/jobs/{}/result", text(&job["id"]))).await.expect(200), json!(null));
}

// FEATURES: B10
#[tokio::test]
async fn echo_waits_for_its_delay() {
    let server = Server::start().await;
    let before = std::time::Instant::now();
    let job = server.run(&json!({"run": {"echo": {"value": 1, "delay_ms": 60}}})).await;
    assert!(before.elapsed().as_millis() >= 60);
    assert_eq!(job["result"], 1);
}

#[tokio::test]
async fn a_large_job_is_shown_as_submitted() {
    let server = Server::start().await;
    let value = "x".repeat(100_000);
    let job = with(echo(value.clone()), json!({"labels": {"size": "large"}, "priority": "batch"}));
    let shown = server.run(&job).await;
    assert_eq!(shown["result"], value);
    assert_eq!(shown["run"]["echo"]["value"], value);
    assert_eq!((&shown["labels"], &shown["priority"]), (&job["labels"], &job["priority"]));
    let page = server.get("/v1/jobs").await.expect(200);
    assert_eq!(page["items"][0]["run"], shown["run"]);
}
