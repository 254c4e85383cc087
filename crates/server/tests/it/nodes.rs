//! Nodes that are cordoned and drained.

use serde_json::json;

use crate::http::Request;
use crate::support::{Server, echo, endless, states, text};

async fn node_of(server: &Server) -> String {
    text(&server.get("/v1/nodes").await.expect(200)["items"][0]["id"])
}

// FEATURES: C2
#[tokio::test]
async fn a_cordoned_node_gets_no_new_work_also_after_a_restart() {
    let mut server = Server::with_shards(2).await;
    let path = format!("/v1/nodes/{}", node_of(&server).await);
    let cordon = Request::post(format!("{path}/cordon")).header("outlast-actor", "ann");
    let cordon = cordon.header("content-type", "application/json").body(r#"{"reason": "a new disk"}"#);
    let node = server.send(cordon).await.expect(200);
    assert_eq!((&node["state"], &node["cordon"]["by"]), (&json!("cordoned"), &json!("ann")));
    let job = server.submit(&echo("late")).await;
    server.restart().await;
    let node = server.get(&path).await.expect(200);
    assert_eq!((&node["state"], &node["cordon"]["reason"]), (&json!("cordoned"), &json!("a new disk")));
    let why = server.seen(&format!("/v1/jobs/{job}/why"), |why| why["runner_counts"]["cordoned"] == json!(1)).await;
    assert_eq!(why["runners"][0]["verdict"], json!("cordoned"));
    assert_eq!(server.job(&job).await["state"], json!("scheduled"));
    let node = server.act(&format!("{path}/uncordon")).await.expect(200);
    assert_eq!((&node["state"], &node["cordon"]), (&json!("ready"), &json!(null)));
    assert_eq!(server.ended(&job).await["result"], json!("late"));
}

// FEATURES: B6
#[tokio::test]
async fn a_drained_node_takes_its_work_back_at_the_deadline_and_no_retry_is_used() {
    let server = Server::start().await;
    let path = format!("/v1/nodes/{}", node_of(&server).await);
    let job = server.submit(&endless()).await;
    server.job_in(&job, "running").await;
    let node = server.post(&format!("{path}/drain"), &json!({})).await.expect(200);
    assert_eq!(node["cordon"]["drain_deadline"], json!(null), "without a deadline its work may take its time");
    server.seen(&path, |node| node["state"] == json!("draining") && node["in_flight"] == json!(1)).await;
    server.post(&format!("{path}/drain"), &json!({"deadline_ms": 0})).await.expect(200);
    server.seen(&path, |node| node["state"] == json!("drained")).await;
    let waiting = server.job_in(&job, "scheduled").await;
    assert_eq!((&waiting["retries"], &waiting["attempt"]), (&json!(0), &json!(1)));
    server.act(&format!("{path}/uncordon")).await.expect(200);
    let again = server.job_in(&job, "running").await;
    assert_eq!(states(&again).iter().filter(|state| *state == "running").count(), 2);
}

#[tokio::test]
async fn bad_requests_about_nodes_are_refused() {
    let server = Server::start().await;
    let path = format!("/v1/nodes/{}", node_of(&server).await);
    server.act("/v1/nodes/node_0000000000000/cordon").await.refused(404, "unknown_node");
    server.post(&format!("{path}/drain"), &json!({"deadline": 5})).await.refused(400, "unknown_field");
    let reason = "x".repeat(3_000);
    server.post(&format!("{path}/cordon"), &json!({"reason": reason})).await.refused(400, "invalid_field");
    assert_eq!(server.get(&path).await.expect(200)["state"], json!("ready"));
}
