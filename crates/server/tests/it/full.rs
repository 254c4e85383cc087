//! The limit of live jobs per shard: refusal with `retry-after`, and acceptance once there is room.

use serde_json::json;

use crate::support::{Server, echo, endless, text, with};

#[tokio::test]
async fn a_full_shard_refuses_jobs_with_retry_after_until_there_is_room() {
    let server = Server::with(|options| options.live_jobs_max = 3).await;
    let failed = text(&server.run(&json!({"run": {"echo": {"fail": "fatal"}}})).await["id"]);
    let mut live = Vec::new();
    for _ in 0..3 {
        live.push(server.submit(&endless()).await);
    }
    let keyed = with(echo(1), json!({"idempotency_key": "k"}));
    for job in [&echo(1), &keyed] {
        let reply = server.post("/v1/jobs", job).await;
        reply.refused(429, "too_many_jobs");
        let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds));
    }
    let batch = server.post("/v1/jobs", &json!({"jobs": [echo(1), {"run": 1}]})).await.expect(200);
    assert_eq!(batch["results"][0]["error"]["code"], "too_many_jobs");
    assert_eq!(batch["results"][1]["error"]["code"], "invalid_json");
    server.act(&format!("/v1/jobs/{failed}/retry")).await.refused(429, "too_many_jobs");
    server.works_with(4).await;

    server.act(&format!("/v1/jobs/{}/cancel", live[0])).await.expect(200);
    server.ended(&live[0]).await;
    assert_eq!(server.run(&keyed).await["state"], "succeeded");
    server.act(&format!("/v1/jobs/{failed}/retry")).await.expect(200);
    server.ended(&failed).await;
    let batch = server.post("/v1/jobs", &json!({"jobs": [endless(), endless()]})).await.expect(200);
    assert!(batch["results"][0]["id"].is_string(), "the shard has room for one job: {batch}");
    assert_eq!(batch["results"][1]["error"]["code"], "too_many_jobs");
}

#[tokio::test]
async fn the_live_job_limit_counts_rehydrated_jobs_after_a_restart() {
    let mut server = Server::with(|options| options.live_jobs_max = 2).await;
    let first = server.submit(&endless()).await;
    server.submit(&endless()).await;
    server.restart().await;
    server.post("/v1/jobs", &echo(1)).await.refused(429, "too_many_jobs");
    server.act(&format!("/v1/jobs/{first}/cancel")).await.expect(200);
    server.ended(&first).await;
    server.run(&echo(1)).await;
}
