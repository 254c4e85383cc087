//! Operations on jobs: cancel, retract, retry, delete, and the exact response of each.

use serde_json::json;

use crate::support::{Server, echo, endless, from_now, process, shell, states, text, with};

// FEATURES: C3
#[tokio::test]
async fn cancel_ends_a_job_in_any_live_state_and_is_idempotent() {
    let server = Server::with_shards(4).await;
    let running = server.submit(&endless()).await;
    server.job_in(&running, "running").await;
    let waiting = server.submit(&with(echo(1), json!({"not_before": from_now(600_000)}))).await;
    for id in [&running, &waiting] {
        let path = format!("/v1/jobs/{id}/cancel");
        server.act(&path).await.expect(200);
        server.act(&path).await.expect(200);
        let job = server.ended(id).await;
        assert_eq!((&job["state"], &job["reason"]), (&json!("cancelled"), &json!("cancel_requested")));
        assert_eq!(server.act(&path).await.expect(200)["state"], "cancelled");
    }
    assert_eq!(states(&server.job(&waiting).await), ["blocked", "cancelled"]);
    let job = server.job(&running).await;
    assert!(states(&job).ends_with(&["cancelling".to_owned(), "cancelled".to_owned()]), "{job}");
    assert_eq!((&job["attempt"], &job["retries"]), (&json!(1), &json!(0)), "a cancelled job is not retried");
}

// FEATURES: C3
#[tokio::test]
async fn a_succeeded_or_failed_job_cannot_be_cancelled() {
    let server = Server::start().await;
    for job in [echo(1), json!({"run": {"echo": {"fail": "fatal"}}})] {
        let job = server.run(&job).await;
        let (id, state) = (text(&job["id"]), text(&job["state"]));
        let problem = server.act(&format!("/v1/jobs/{id}/cancel")).await.refused(409, "wrong_state");
        assert!(text(&problem["detail"]).contains(&state), "{problem}");
        assert_eq!(server.job(&id).await, job, "the job is unchanged");
    }
}

// FEATURES: C3
#[tokio::test]
async fn a_failed_job_can_be_retried_within_its_retry_budget() {
    let server = Server::with_shards(4).await;
    let failing = json!({"run": {"echo": {"fail": "fatal"}}, "max_retries": 2});
    let id = text(&server.run(&failing).await["id"]);
    let path = format!("/v1/jobs/{id}/retry");
    for retries in 1..=2 {
        let job = server.act(&path).await.expect(200);
        assert_eq!(job["retries"], retries);
        let job = server.ended(&id).await;
        assert_eq!((&job["state"], &job["attempt"]), (&json!("failed"), &json!(retries + 1)));
    }
    let problem = server.act(&path).await.refused(409, "retries_used_up");
    assert!(text(&problem["detail"]).contains('2'), "{problem}");
    assert_eq!(server.job(&id).await["attempt"], 3);
}

// FEATURES: C3
#[tokio::test]
async fn only_a_failed_job_can_be_retried() {
    let server = Server::start().await;
    let live = server.submit(&endless()).await;
    let succeeded = text(&server.run(&echo(1)).await["id"]);
    let cancelled = server.submit(&endless()).await;
    server.act(&format!("/v1/jobs/{cancelled}/cancel")).await.expect(200);
    server.ended(&cancelled).await;
    for id in [&live, &succeeded, &cancelled] {
        server.job_when(id, |job| job["state"] != "dispatched" && job["state"] != "scheduled").await;
        let state = text(&server.job(id).await["state"]);
        let problem = server.act(&format!("/v1/jobs/{id}/retry")).await.refused(409, "wrong_state");
        assert!(text(&problem["detail"]).contains(&state), "{problem}");
    }
}

// FEATURES: C3
#[tokio::test]
async fn a_retracted_job_runs_again_without_using_a_retry() {
    let server = Server::start().await;
    let id = server.submit(&with(endless(), json!({"max_retries": 0}))).await;
    for attempt in 1..=3 {
        server.job_when(&id, |job| job["state"] == "running" && job["attempt"] == attempt).await;
        server.act(&format!("/v1/jobs/{id}/retract")).await.expect(200);
        let job = server.job_when(&id, |job| job["attempt"] == attempt + 1).await;
        assert_eq!(job["retries"], 0);
    }
}

// FEATURES: C3
#[tokio::test]
async fn a_repeated_retract_of_a_stopping_attempt_changes_nothing() {
    let server = Server::with(|options| options.stop_grace_ms = 1_000).await;
    let ignores_sigterm = shell("trap '' TERM; echo ready; while :; do sleep 0.01; done");
    let id = server.submit(&with(ignores_sigterm, json!({"max_retries": 0}))).await;
    let path = format!("/v1/jobs/{id}/retract");
    let job = server.job_in(&id, "running").await;
    // The trap is set once "ready" is printed. SIGTERM before that would end the shell.
    while !crate::processes::logs(&server, &job, "").await.contains("ready") {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        let job = server.act(&path).await.expect(200);
        assert_eq!((&job["state"], &job["attempt"]), (&json!("running"), &json!(1)));
    }
    server.job_when(&id, |job| job["state"] == "running" && job["attempt"] == 2).await;
    let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
    assert_eq!((&history["attempts"][0]["end"], &history["attempts"][1]["end"]), (&json!("stopped"), &json!(null)));
}

// FEATURES: C3
#[tokio::test]
async fn retract_changes_nothing_for_a_job_that_is_not_on_a_runner() {
    let server = Server::start().await;
    let waiting = server.submit(&with(echo(1), json!({"not_before": from_now(600_000)}))).await;
    let before = server.job(&waiting).await;
    server.act(&format!("/v1/jobs/{waiting}/retract")).await.expect(200);
    assert_eq!(server.job(&waiting).await, before);
    let ended = text(&server.run(&echo(1)).await["id"]);
    server.act(&format!("/v1/jobs/{ended}/retract")).await.refused(409, "wrong_state");
}

// FEATURES: C12
#[tokio::test]
async fn only_a_terminal_job_can_be_deleted() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let live = server.submit(&endless()).await;
        let ended = text(&server.run(&process(&["echo", "said"])).await["id"]);
        assert_eq!(server.get(&format!("/v1/jobs/{ended}/logs")).await.text(), "said\n");
        let problem = server.delete(&format!("/v1/jobs/{live}")).await.refused(409, "wrong_state");
        assert!(text(&problem["detail"]).contains("deleted"), "{problem}");
        let reply = server.delete(&format!("/v1/jobs/{ended}")).await;
        assert_eq!((reply.status, reply.body.len()), (204, 0));
        server.get(&format!("/v1/jobs/{ended}")).await.refused(404, "unknown_job");
        server.get(&format!("/v1/jobs/{ended}/logs")).await.refused(404, "unknown_job");
        server.delete(&format!("/v1/jobs/{ended}")).await.refused(404, "unknown_job");
        assert_eq!(server.listed("/v1/jobs", 10).await, [live.as_str()]);
    }
}
