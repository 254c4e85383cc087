//! Clean restart on the same directory: no state is lost, nothing runs twice.

use serde_json::{Value, json};

use crate::support::{Server, echo, endless, from_now, states, text, with};

/// All listed jobs and queues.
async fn everything(server: &Server) -> (Value, Value) {
    (server.get("/v1/jobs?limit=1000").await.expect(200), server.get("/v1/queues?limit=1000").await.expect(200))
}

// FEATURES: B2, B3, B7, D16
#[tokio::test]
async fn terminal_jobs_are_unchanged_by_a_restart() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let queue = text(&server.create_queue(&json!({"tag": "kept", "max_running": 2})).await["token"]);
        let mut jobs = vec![with(echo("x".repeat(10_000)), json!({"queue": queue, "labels": {"a": "b"}}))];
        jobs.push(json!({"run": {"echo": {"fail": "error"}}, "topic": "t", "max_retries": 2}));
        jobs.push(with(endless(), json!({"timeout_ms": 10, "tenant": "acme"})));
        for job in &jobs {
            server.run(job).await;
        }
        let cancelled = server.submit(&endless()).await;
        server.act(&format!("/v1/jobs/{cancelled}/cancel")).await.expect(200);
        server.ended(&cancelled).await;
        let before = everything(&server).await;
        for _ in 0..2 {
            server.restart().await;
            assert_eq!(everything(&server).await, before);
        }
        let id = text(&before.0["items"][0]["id"]);
        server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
        assert_eq!(server.get(&format!("/v1/queues/{queue}")).await.expect(200)["tag"], "kept");
    }
}

// FEATURES: B3, B7
#[tokio::test]
async fn live_jobs_continue_without_using_a_retry() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let queue = text(&server.create_queue(&json!({"max_running": 1, "max_retries": 0})).await["id"]);
        let slow = json!({"run": {"echo": {"value": "slow", "delay_ms": 500}}, "queue": queue});
        let running = server.submit(&slow).await;
        let waiting = server.submit(&slow).await;
        server.job_in(&running, "running").await;
        server.restart().await;
        for (id, attempts) in [(&running, 2), (&waiting, 1)] {
            let job = server.ended(id).await;
            assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!("slow")));
            assert_eq!((&job["attempt"], &job["retries"]), (&json!(attempts), &json!(0)), "{job}");
        }
        let history = server.get(&format!("/v1/jobs/{running}/history")).await.expect(200);
        assert_eq!(history["attempts"][0]["end"], "stopped");
        assert_eq!(history["attempts"][1]["end"], "succeeded");
    }
}

// FEATURES: D11
#[tokio::test]
async fn delays_survive_a_restart_and_fire_once() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let soon = from_now(150);
        let due_soon = server.submit(&with(echo(1), json!({"not_before": soon}))).await;
        let due_later = server.submit(&with(echo(2), json!({"not_before": from_now(600_000)}))).await;
        let deadline = server.submit(&with(endless(), json!({"deadline": from_now(400)}))).await;
        server.restart().await;
        let job = server.ended(&due_soon).await;
        assert_eq!(states(&job), ["blocked", "pending", "scheduled", "dispatched", "running", "succeeded"]);
        assert!(text(&job["states"][1]["at"]) >= soon, "{job}");
        assert_eq!(server.job(&due_later).await["state"], "blocked");
        assert_eq!(server.ended(&deadline).await["reason"], "deadline_passed");
        server.restart().await;
        assert_eq!(server.job(&due_soon).await, job);
    }
}

// FEATURES: D11
#[tokio::test]
async fn a_delay_that_expires_while_the_server_is_down_fires_at_the_start() {
    let mut server = Server::start().await;
    let due = from_now(100);
    let id = server.submit(&with(echo(1), json!({"not_before": due}))).await;
    server.stop().await;
    // Wall clock time is the only condition here.
    while from_now(0) <= due {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    server.start_again().await;
    assert_eq!(server.ended(&id).await["state"], "succeeded");
}

// FEATURES: D11
#[tokio::test]
async fn a_retry_delay_survives_a_restart() {
    let waits = |ms| move |options: &mut server::Options| (options.retry_first_ms, options.retry_longest_ms) = (ms, ms);
    let failing = json!({"run": {"echo": {"fail": "error"}}, "max_retries": 1});
    let mut server = Server::with(waits(600_000)).await;
    let id = server.submit(&failing).await;
    let waiting = server.job_when(&id, |job| job["reason"] == "retry_later").await;
    server.restart().await;
    assert_eq!(server.job(&id).await, waiting);

    let mut server = Server::with(waits(300)).await;
    let id = server.submit(&failing).await;
    let waiting = server.job_when(&id, |job| job["reason"] == "retry_later").await;
    server.restart().await;
    let job = server.ended(&id).await;
    assert_eq!((&job["state"], &job["attempt"]), (&json!("failed"), &json!(2)));
    let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
    assert!(text(&history["attempts"][1]["dispatched_at"]) >= text(&waiting["eligible_at"]), "{history}");
}

// FEATURES: C1
#[tokio::test]
async fn sequence_numbers_and_ids_continue_after_a_restart() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let queue = text(&server.create_queue(&json!({})).await["id"]);
        let job = with(echo(1), json!({"queue": queue}));
        let mut last_id = String::new();
        for seq in 1..=6 {
            let accepted = server.post("/v1/jobs", &job).await.expect(201);
            assert_eq!(accepted["seq"], seq);
            let id = text(&accepted["id"]);
            assert!(id > last_id, "{id} after {last_id}");
            if seq == 4 {
                // The number of a deleted job is not reused, even if it was the newest.
                server.ended(&id).await;
                assert_eq!(server.delete(&format!("/v1/jobs/{id}")).await.status, 204);
            }
            last_id = id;
            if seq % 2 == 0 {
                server.restart().await;
            }
        }
    }
}

// FEATURES: C4
#[tokio::test]
async fn a_closed_queue_stays_closed_after_a_restart() {
    let mut server = Server::with_shards(4).await;
    let draining = text(&server.create_queue(&json!({})).await["id"]);
    let cancelled = text(&server.create_queue(&json!({})).await["id"]);
    let job = server.submit(&with(endless(), json!({"queue": cancelled}))).await;
    server.act(&format!("/v1/queues/{draining}/drain")).await.expect(200);
    server.act(&format!("/v1/queues/{cancelled}/cancel")).await.expect(200);
    server.restart().await;
    for queue in [&draining, &cancelled] {
        server.post(&format!("/v1/queues/{queue}/jobs"), &echo(1)).await.refused(409, "queue_closed");
    }
    assert_eq!(server.ended(&job).await["state"], "cancelled");
}

#[tokio::test]
async fn long_polls_are_answered_when_the_server_stops() {
    let mut server = Server::start().await;
    let id = server.submit(&endless()).await;
    server.job_in(&id, "running").await;
    let api = server.api();
    let path = format!("/v1/jobs/{id}?wait_ms=25000");
    let since = std::time::Instant::now();
    let waiting = tokio::spawn(async move { api.get(&path).await });
    // This request is sent later. When its shorter wait ends, the server has received the long poll.
    server.get(&format!("/v1/jobs/{id}?wait_ms=50")).await.expect(200);
    server.stop().await;
    let reply = waiting.await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(since.elapsed() < std::time::Duration::from_secs(15));
}
