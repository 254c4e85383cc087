//! Retry delays, timeouts, deadlines and delayed starts.

use serde_json::json;

use crate::support::{Server, echo, endless, from_now, processes_of, shell, states, text, until, with};

// FEATURES: C3
#[tokio::test]
async fn a_failing_job_is_retried_up_to_the_limit_of_the_job_or_its_queue() {
    let server = Server::with_shards(4).await;
    let queue = text(&server.create_queue(&json!({"max_retries": 1})).await["id"]);
    let without_retries = text(&server.create_queue(&json!({"max_retries": 0})).await["id"]);
    let failing = json!({"run": {"echo": {"fail": "error"}}});
    for (fields, attempts) in [
        (json!({}), 4),
        (json!({"queue": queue}), 2),
        (json!({"queue": without_retries}), 1),
        (json!({"queue": without_retries, "max_retries": 2}), 3),
        (json!({"max_retries": 0}), 1),
    ] {
        let job = server.run(&with(failing.clone(), fields)).await;
        assert_eq!((&job["state"], &job["reason"]), (&json!("failed"), &json!("retries_exhausted")));
        assert_eq!((&job["attempt"], &job["retries"]), (&json!(attempts), &json!(attempts - 1)));
    }
}

// FEATURES: C3
#[tokio::test]
async fn the_retry_delay_grows_with_each_attempt() {
    let server = Server::with(|options| (options.retry_first_ms, options.retry_longest_ms) = (20, 60)).await;
    let job = server.run(&json!({"run": {"echo": {"fail": "error"}}, "max_retries": 3})).await;
    let history = server.get(&format!("/v1/jobs/{}/history", text(&job["id"]))).await.expect(200);
    let time = |attempt: usize, name: &str| {
        let text = text(&history["attempts"][attempt][name]);
        serde_json::from_value::<model::time::Timestamp>(json!(text)).unwrap().0.0
    };
    let waits: Vec<u64> = (1..4).map(|next| time(next, "dispatched_at") - time(next - 1, "ended_at")).collect();
    for (wait, least) in waits.iter().zip([20, 40, 60]) {
        assert!(*wait >= least, "{waits:?}");
    }
}

#[tokio::test]
async fn a_job_waiting_for_a_retry_shows_the_reason_and_can_be_cancelled() {
    let server = Server::with(|options| (options.retry_first_ms, options.retry_longest_ms) = (600_000, 600_000)).await;
    let id = server.submit(&json!({"run": {"echo": {"fail": "error"}}})).await;
    let job = server.job_when(&id, |job| job["reason"] == "retry_later").await;
    assert_eq!(job["state"], "scheduled");
    assert!(job["eligible_at"].is_string(), "{job}");
    server.act(&format!("/v1/jobs/{id}/cancel")).await.expect(200);
    assert_eq!(server.ended(&id).await["state"], "cancelled");
}

// FEATURES: D4
#[tokio::test]
async fn an_attempt_beyond_its_timeout_is_timed_out_and_stopped() {
    let server = Server::start().await;
    let job = server.run(&with(endless(), json!({"timeout_ms": 50}))).await;
    assert_eq!((&job["state"], &job["reason"]), (&json!("timed_out"), &json!("attempt_timed_out")));
    assert!(text(&job["message"]).contains("50 ms"), "{job}");
    let job = server.run(&with(shell("sleep 600 & wait"), json!({"timeout_ms": 100}))).await;
    assert_eq!(job["state"], "timed_out");
    let id = text(&job["id"]);
    until("the process of the timed out job still runs", || processes_of(&id).is_empty()).await;
}

// FEATURES: D4
#[tokio::test]
async fn a_passed_deadline_ends_a_job_in_any_state() {
    let server = Server::with_shards(4).await;
    let deadline = json!({"deadline": from_now(150)});
    let running = server.submit(&with(endless(), deadline.clone())).await;
    let blocked = with(echo(1), json!({"not_before": from_now(600_000)}));
    let blocked = server.submit(&with(blocked, deadline)).await;
    let late = server.submit(&with(endless(), json!({"deadline": from_now(-1000)}))).await;
    for id in [running, blocked, late] {
        let job = server.ended(&id).await;
        assert_eq!((&job["state"], &job["reason"]), (&json!("timed_out"), &json!("deadline_passed")));
    }
    let in_time = server.run(&with(echo(1), json!({"deadline": from_now(600_000)}))).await;
    assert_eq!(in_time["state"], "succeeded");
}

// FEATURES: D4
#[tokio::test]
async fn a_timed_out_job_can_be_retried() {
    let server = Server::start().await;
    let id = text(&server.run(&with(endless(), json!({"timeout_ms": 30}))).await["id"]);
    server.act(&format!("/v1/jobs/{id}/retry")).await.expect(200);
    let job = server.ended(&id).await;
    assert_eq!((&job["state"], &job["attempt"]), (&json!("timed_out"), &json!(2)));
}

#[tokio::test]
async fn a_job_does_not_start_before_not_before() {
    let server = Server::with_shards(4).await;
    let not_before = from_now(400);
    let id = server.submit(&with(echo(1), json!({"not_before": not_before}))).await;
    let job = server.job(&id).await;
    assert_eq!(job["state"], "blocked");
    assert_eq!((&job["not_before"], &job["eligible_at"]), (&json!(not_before), &json!(not_before)));
    let job = server.ended(&id).await;
    assert_eq!(states(&job), ["blocked", "pending", "scheduled", "dispatched", "running", "succeeded"]);
    assert!(text(&job["states"][1]["at"]) >= not_before, "{job}");
    let past = server.run(&with(echo(1), json!({"not_before": from_now(-1000)}))).await;
    assert_eq!(states(&past)[0], "pending");
}
