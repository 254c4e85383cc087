//! Dead letters: list, show, retry, purge.

use serde_json::{Value, json};

use crate::support::{Api, Server, echo, text, with};

fn failing(topic: &str) -> Value {
    json!({"run": {"echo": {"fail": "fatal"}}, "topic": topic, "max_retries": 5})
}

async fn failed(server: &Api, topic: &str) -> String {
    text(&server.run(&failing(topic)).await["id"])
}

// FEATURES: D8
#[tokio::test]
async fn dead_letters_are_listed_shown_retried_and_purged() {
    let server = Server::with_shards(4).await;
    let mut ids = Vec::new();
    for topic in ["a", "b", "a", "b", "a"] {
        ids.push(failed(&server, topic).await);
    }
    server.run(&echo(1)).await;
    assert_eq!(server.listed("/v1/dlq", 2).await, ids, "dead letters are not listed oldest first across shards");
    assert_eq!(server.listed("/v1/dlq?topic=b", 1).await, [ids[1].clone(), ids[3].clone()]);
    assert_eq!(server.listed("/v1/dlq?reason=fatal&tenant=default", 9).await, ids);
    assert!(server.listed("/v1/dlq?reason=retries_exhausted", 9).await.is_empty());
    assert!(server.listed("/v1/dlq?older_than_ms=3600000", 9).await.is_empty());

    let id = &ids[0];
    let dead_letter = server.get(&format!("/v1/dlq/{id}")).await.expect(200);
    assert_eq!((&dead_letter["state"], &dead_letter["reason"]), (&json!("failed"), &json!("fatal")));
    assert_eq!(dead_letter["job"]["id"], json!(id));
    server.act(&format!("/v1/dlq/{id}/retry")).await.expect(200);
    let retried = server.job_when(id, |job| job["attempt"] == 2 && job["state"] == "failed").await;
    assert_eq!(retried["retries"], 1);
    assert_eq!(server.listed("/v1/dlq", 9).await, ids, "the retried job failed and is not listed");

    assert_eq!(server.delete(&format!("/v1/dlq/{id}")).await.status, 204);
    server.get(&format!("/v1/dlq/{id}")).await.refused(404, "unknown_job");
    server.get(&format!("/v1/jobs/{id}")).await.refused(404, "unknown_job");
    server.delete(&format!("/v1/dlq/{id}")).await.refused(404, "unknown_job");
    assert_eq!(server.listed("/v1/dlq", 9).await, ids[1..]);
}

// FEATURES: D8
#[tokio::test]
async fn dead_letters_are_purged_by_filter() {
    let server = Server::with_shards(2).await;
    for topic in ["a", "a", "a", "b"] {
        failed(&server, topic).await;
    }
    server.delete("/v1/dlq").await.refused(400, "invalid_parameter");
    server.delete("/v1/dlq?topik=a").await.refused(400, "invalid_parameter");
    server.delete("/v1/dlq?all=true&limit=1001").await.refused(400, "invalid_parameter");
    server.delete("/v1/dlq?all=true&limit=0").await.refused(400, "invalid_parameter");
    let nothing = server.delete("/v1/dlq?older_than_ms=3600000").await.expect(200);
    assert_eq!(nothing, json!({"purged": 0, "more": false}));
    let some = server.delete("/v1/dlq?topic=a&limit=2").await.expect(200);
    assert_eq!(some, json!({"purged": 2, "more": true}));
    let rest = server.delete("/v1/dlq?topic=a").await.expect(200);
    assert_eq!(rest, json!({"purged": 1, "more": false}));
    assert_eq!(server.listed("/v1/dlq", 9).await.len(), 1);
    assert_eq!(server.delete("/v1/dlq?all=true&limit=1000").await.expect(200)["purged"], 1);
    server.works_with(0).await;
}

#[tokio::test]
async fn a_succeeded_job_has_no_dead_letter() {
    let server = Server::start().await;
    let id = text(&server.run(&echo(1)).await["id"]);
    server.get(&format!("/v1/dlq/{id}")).await.refused(404, "no_dead_letter");
    server.delete(&format!("/v1/dlq/{id}")).await.refused(404, "no_dead_letter");
    server.act(&format!("/v1/dlq/{id}/retry")).await.refused(409, "wrong_state");
    server.get("/v1/dlq/nonsense").await.refused(400, "invalid_id");
    server.job(&id).await;
}

#[tokio::test]
async fn a_dead_letter_without_retries_left_cannot_be_retried() {
    let server = Server::start().await;
    let job = with(failing("a"), json!({"max_retries": 0}));
    let id = text(&server.run(&job).await["id"]);
    server.act(&format!("/v1/dlq/{id}/retry")).await.refused(409, "retries_used_up");
    assert_eq!(server.listed("/v1/dlq", 9).await, [id]);
}

// FEATURES: D8
#[tokio::test]
async fn dead_letters_survive_a_restart() {
    let mut server = Server::start().await;
    let id = failed(&server, "a").await;
    server.restart().await;
    assert_eq!(server.listed("/v1/dlq", 9).await, [id]);
}
