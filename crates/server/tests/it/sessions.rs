//! Sessions of nodes.

use serde_json::{Value, json};

use crate::http::Request;
use crate::support::{Server, echo, endless, text};

async fn own_node(server: &Server) -> String {
    text(&server.get("/v1/session").await.expect(200)["node"])
}

async fn move_session(server: &Server, what: &str) -> Value {
    server.act(&format!("/v1/session/{what}")).await.expect(200)
}

// FEATURES: C2
#[tokio::test]
async fn a_session_moves_forward_and_anything_else_is_refused() {
    let server = Server::start().await;
    let node = own_node(&server).await;
    let session = server.get("/v1/session").await.expect(200);
    assert_eq!((&session["state"], &session["number"]), (&json!("ready"), &json!(1)));
    assert_eq!(server.get(&format!("/v1/nodes/{node}/session")).await.expect(200), session);
    let pause = Request::post("/v1/session/pause").header("outlast-actor", "ann");
    let pause = pause.header("content-type", "application/json").body(r#"{"reason": "a new disk"}"#);
    let paused = server.send(pause).await.expect(200);
    let shown = (&paused["state"], &paused["by"], &paused["reason"]);
    assert_eq!(shown, (&json!("paused"), &json!("ann"), &json!("a new disk")));
    for what in ["ready", "drain", "pause"] {
        let problem = server.act(&format!("/v1/nodes/{node}/session/{what}")).await.refused(409, "session_state");
        let detail = text(&problem["detail"]);
        assert!(detail.contains("is paused") && detail.contains("nodes uncordon"), "{detail}");
    }
    server.post(&format!("/v1/nodes/{node}/drain"), &json!({})).await.refused(409, "session_state");
    assert_eq!(server.get("/v1/session").await.expect(200), paused, "a refused move changes nothing");
    server.act("/v1/session/created").await.refused(404, "unknown_route");
    server.act("/v1/nodes/node_0000000000000/session/pause").await.refused(404, "unknown_node");
    server.post("/v1/session/sunset", &json!({"reason": "x".repeat(201)})).await.refused(400, "invalid_field");
}

// FEATURES: C2
#[tokio::test]
async fn a_paused_node_gets_no_new_work_also_after_a_restart_until_it_is_uncordoned() {
    let mut server = Server::with_shards(2).await;
    let node = own_node(&server).await;
    move_session(&server, "pause").await;
    let job = server.submit(&echo("late")).await;
    server.restart().await;
    let path = format!("/v1/nodes/{node}");
    let shown = server.get(&path).await.expect(200);
    assert_eq!((&shown["state"], &shown["session"]["state"]), (&json!("paused"), &json!("paused")));
    assert_eq!(shown["healthy"], json!(true));
    server.seen(&format!("/v1/jobs/{job}/why"), |why| why["runner_counts"]["cordoned"] == json!(1)).await;
    let shown = server.act(&format!("{path}/uncordon")).await.expect(200);
    assert_eq!((&shown["state"], &shown["session"]["number"]), (&json!("ready"), &json!(2)));
    assert_eq!(server.ended(&job).await["result"], json!("late"));
}

// FEATURES: C2
#[tokio::test]
async fn draining_the_session_drains_the_node() {
    let server = Server::start().await;
    let path = format!("/v1/nodes/{}", own_node(&server).await);
    let job = server.submit(&endless()).await;
    server.job_in(&job, "running").await;
    assert_eq!(move_session(&server, "drain").await["state"], json!("draining"));
    server.seen(&path, |node| node["state"] == json!("draining") && node["in_use"]["echo"] == json!(1)).await;
    assert_eq!(server.job(&job).await["state"], json!("running"));
    server.post(&format!("{path}/drain"), &json!({"deadline_ms": 0})).await.expect(200);
    server.seen(&path, |node| node["state"] == json!("drained")).await;
    assert_eq!(server.job_in(&job, "scheduled").await["retries"], json!(0));
    let shown = server.act(&format!("{path}/uncordon")).await.expect(200);
    assert_eq!((&shown["session"]["state"], &shown["cordon"]), (&json!("ready"), &json!(null)));
    server.job_in(&job, "running").await;
}

// FEATURES: C2
#[tokio::test]
async fn jobs_of_an_abandoned_node_without_others_end_as_abandoned_and_it_is_not_healthy() {
    let mut server = Server::with_shards(2).await;
    let node = own_node(&server).await;
    let (running, other) = (server.submit(&endless()).await, server.submit(&endless()).await);
    server.job_in(&running, "running").await;
    server.job_in(&other, "running").await;
    server.get("/healthz").await.expect(200);
    move_session(&server, "abandon").await;
    for job in [running, other] {
        let ended = server.ended(&job).await;
        assert_eq!((&ended["state"], &ended["retries"]), (&json!("abandoned"), &json!(0)), "{ended}");
        assert_eq!(ended["reason"], json!("node_abandoned"), "{ended}");
    }
    for path in ["/healthz", "/readyz"] {
        server.get(path).await.refused(503, "node_given_up");
    }
    let path = format!("/v1/nodes/{node}");
    let shown = server.seen(&path, |node| node["in_flight"] == json!(0)).await;
    assert_eq!((&shown["state"], &shown["healthy"]), (&json!("abandoned"), &json!(false)));
    // A job that has no attempt waits for the next session, which begins with the next start.
    let waiting = server.submit(&echo("later")).await;
    server.act("/v1/session/ready").await.refused(409, "session_state");
    server.restart().await;
    let session = server.get("/v1/session").await.expect(200);
    assert_eq!((&session["state"], &session["number"]), (&json!("ready"), &json!(2)));
    server.get("/readyz").await.expect(200);
    assert_eq!(server.ended(&waiting).await["result"], json!("later"));
}

// FEATURES: C2
#[tokio::test]
async fn a_node_that_is_over_stays_so_until_it_is_uncordoned() {
    let mut server = Server::start().await;
    let node = own_node(&server).await;
    let job = server.submit(&endless()).await;
    server.job_in(&job, "running").await;
    move_session(&server, "sunset").await;
    assert_eq!(server.ended(&job).await["state"], json!("abandoned"));
    server.restart().await;
    server.get("/readyz").await.refused(503, "node_given_up");
    for what in ["ready", "drain", "pause", "abandon", "sunset"] {
        server.act(&format!("/v1/session/{what}")).await.refused(409, "session_state");
    }
    server.act(&format!("/v1/nodes/{node}/uncordon")).await.expect(200);
    server.get("/readyz").await.expect(200);
    assert_eq!(server.run(&echo("again")).await["result"], json!("again"));
}
