//! Audit log: lists, filters, verification and export of the hash chain.

use serde_json::{Value, json};

use crate::governance::{GATES, governed};
use crate::http::Request;
use crate::support::{Server, echo, text, with};

pub async fn busy_server() -> (Server, tempfile::TempDir, String) {
    let (server, rules) = governed(GATES, |options| options.shards = 3).await;
    for topic in ["a", "mining", "short", "b", "mining", "c"] {
        server.run(&with(echo(1), json!({"topic": topic}))).await;
    }
    let id = text(&server.run(&with(echo(1), json!({"topic": "mining"}))).await["id"]);
    let remove = Request::delete(format!("/v1/jobs/{id}")).header("outlast-actor", "ada");
    assert_eq!(server.send(remove).await.status, 204);
    (server, rules, id)
}

/// The entries of all pages.
pub async fn read_pages(server: &Server, query: &str, limit: usize) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/audit?limit={limit}{query}{cursor}")).await.expect(200);
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

#[tokio::test]
async fn audit_entries_are_listed_by_time() {
    let (server, _rules, id) = busy_server().await;
    let all = read_pages(&server, "", 1000).await;
    assert_eq!(read_pages(&server, "", 2).await, all, "the page size changes the entries");
    let mut newest = read_pages(&server, "&newest_first=true", 3).await;
    newest.reverse();
    let positions = |entries: &[Value]| {
        let mut positions: Vec<(u64, u64)> =
            entries.iter().map(|entry| (entry["shard"].as_u64().unwrap(), entry["number"].as_u64().unwrap())).collect();
        positions.sort_unstable();
        positions
    };
    assert_eq!(positions(&newest), positions(&all));
    let times: Vec<String> = all.iter().map(|entry| text(&entry["at"])).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(read_pages(&server, "&action=denied", 2).await.len(), 3);
    let of_job = read_pages(&server, &format!("&job={id}"), 10).await;
    let actions: Vec<&Value> = of_job.iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["denied", "removed"]);
    assert_eq!((&of_job[1]["by"], &of_job[0]["rule"]), (&json!("ada"), &json!("no-mining")));
    let first = read_pages(&server, "&shard=0&after=0", 1).await;
    assert_eq!(first[0]["number"], 1);
}

#[tokio::test]
async fn verification_and_export_report_the_same_chain_heads() {
    let (server, _rules, _) = busy_server().await;
    let report = server.get("/v1/audit/verify").await.expect(200);
    assert_eq!(report["ok"], true, "{report}");
    let export = server.get("/v1/audit/export").await;
    assert_eq!(export.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> = export.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (heads, entries): (Vec<Value>, Vec<Value>) = lines.into_iter().partition(|line| line["head"].is_object());
    assert_eq!(heads.len(), 3);
    for (shard, head) in report["shards"].as_array().unwrap().iter().zip(&heads) {
        assert_eq!((&shard["shard"], &shard["head"]), (&head["shard"], &head["head"]["link"]));
        assert_eq!(shard["entries"], head["head"]["number"]);
        let own: Vec<&Value> = entries.iter().filter(|entry| entry["shard"] == head["shard"]).collect();
        assert_eq!(shard["entries"], own.len());
        assert_eq!(own.last().map(|last| &last["link"]), Some(&head["head"]["link"]));
    }
}

#[tokio::test]
async fn the_chain_continues_after_a_restart() {
    let (mut server, _rules, _) = busy_server().await;
    let before = server.get("/v1/audit/verify").await.expect(200);
    server.restart().await;
    server.run(&with(echo(1), json!({"topic": "mining"}))).await;
    let after = server.get("/v1/audit/verify").await.expect(200);
    assert_eq!(after["ok"], true, "{after}");
    let entries = |report: &Value| -> u64 {
        report["shards"].as_array().unwrap().iter().map(|shard| shard["entries"].as_u64().unwrap()).sum()
    };
    assert!(entries(&after) > entries(&before));
}

#[tokio::test]
async fn invalid_audit_queries_are_refused() {
    let server = Server::with_shards(2).await;
    for query in ["action=stolen", "shard=2", "after=5", "after=x&shard=0", "limit=0", "limit=1001", "since=1"] {
        server.get(&format!("/v1/audit?{query}")).await.refused(400, "invalid_parameter");
    }
    server.get("/v1/audit?job=nonsense").await.refused(400, "invalid_id");
    for cursor in ["x", "a", "a1", "a1.2.3", "a1.x"] {
        server.get(&format!("/v1/audit?cursor={cursor}")).await.refused(400, "invalid_cursor");
    }
}
