//! Lists of workflows: newest first, paged and filtered.

use serde_json::{Value, json};

use super::{endless, of, run, says, start};
use crate::support::{Server, text};

#[tokio::test]
async fn live_and_terminal_workflows_are_listed_together_newest_first() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let mut ids = Vec::new();
        for number in 0..12 {
            let id = match number % 3 {
                0 => start(&server, &of(json!({"a": endless()}))).await,
                _ => text(&run(&server, &of(json!({"a": says(1)}))).await["id"]),
            };
            ids.push(id);
        }
        ids.sort_unstable();
        ids.reverse();
        for limit in [1, 5, 12, 100] {
            assert_eq!(server.listed("/v1/workflows", limit).await, ids, "{limit} at a time");
        }
        let page = server.get("/v1/workflows?limit=1").await.expect(200);
        let first = &page["items"][0];
        assert!(first.get("tasks").is_none() && first.get("inputs").is_none(), "{first}");
        server.get("/v1/workflows?cursor=x").await.refused(400, "invalid_cursor");
    }
}

#[tokio::test]
async fn lists_can_be_filtered() {
    let server = Server::with_shards(4).await;
    let queue = text(&server.create_queue(&json!({"tenant": "acme"})).await["id"]);
    let begin = async |body: Value| text(&server.post("/v1/workflows?wait_ms=200", &body).await.expect(201)["id"]);
    let named = |name: &str, task: Value| json!({"name": name, "tasks": {"a": task}});
    let done = begin(json!({"definition": named("one", says(1))})).await;
    let live = begin(json!({"definition": named("two", endless())})).await;
    let failed =
        begin(json!({"definition": named("one", json!({"run": {"echo": {"fail": "fatal"}}})), "tenant": "acme"})).await;
    let queued = begin(json!({"definition": named("two", says(1)), "queue": queue, "tenant": "acme"})).await;
    for (query, expected) in [
        ("state=succeeded", vec![&queued, &done]),
        ("state=running,failed", vec![&failed, &live]),
        ("name=one", vec![&failed, &done]),
        ("tenant=acme", vec![&queued, &failed]),
        ("tenant=acme&name=two", vec![&queued]),
        (format!("queue={queue}").as_str(), vec![&queued]),
        ("schedule=sch_0000000000001", vec![]),
    ] {
        let mut listed = server.listed(&format!("/v1/workflows?{query}"), 100).await;
        let mut expected: Vec<String> = expected.into_iter().cloned().collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected, "{query}");
    }
    for (query, code) in [
        ("state=done", "invalid_parameter"),
        ("children=perhaps", "invalid_parameter"),
        ("limit=0", "invalid_parameter"),
        ("limit=1001", "invalid_parameter"),
        ("schedule=x", "invalid_id"),
        ("topic=x", "invalid_parameter"),
    ] {
        server.get(&format!("/v1/workflows?{query}")).await.refused(400, code);
    }
}
