//! Events of workflows and tasks.

use serde_json::{Value, json};

use super::{ended, of, says, start};
use crate::subscription::{Subscription, Transport};
use crate::support::{Server, text};

// FEATURES: B4
#[tokio::test]
async fn every_state_of_a_workflow_and_its_tasks_is_published_once_and_in_order() {
    for transport in Transport::BOTH {
        for shards in [1, 4] {
            let server = Server::with_shards(shards).await;
            let mut changes = Subscription::open(&server, transport, "since=start").await;
            let each = json!({"needs": "a", "for_each": [1, 2], "run": {"echo": {"value": "${item}"}}});
            let id = start(&server, &of(json!({"a": says(1), "b": each}))).await;
            ended(&server, &id).await;
            let is_last = |change: &Value| change["kind"] == "workflow" && change["state"] == "succeeded";
            let seen = changes.until(is_last).await;
            let of_kind = |kind: &str| seen.iter().filter(|change| change["kind"] == kind).cloned().collect::<Vec<_>>();
            let states: Vec<String> = of_kind("workflow").iter().map(|change| text(&change["state"])).collect();
            assert_eq!(states, ["running", "succeeded"]);
            let published: Vec<(Value, String)> =
                of_kind("task").iter().map(|change| (change["place"].clone(), text(&change["state"]))).collect();
            for place in
                [json!({"task": 0, "item": null}), json!({"task": 1, "item": null}), json!({"task": 1, "item": 1})]
            {
                let states: Vec<&str> =
                    published.iter().filter(|(at, _)| *at == place).map(|(_, state)| state.as_str()).collect();
                assert_eq!(states, ["running", "succeeded"], "{place}");
            }
            let is_other = |change: &Value| ["job", "queue", "node"].contains(&change["kind"].as_str().unwrap());
            assert!(seen.iter().all(|change| is_other(change) || change["workflow"] == id));

            // The workflow filter excludes all other events, also when the stream is resumed from a cursor.
            let mut only = Subscription::open(&server, transport, &format!("since=start&workflow={id}")).await;
            let whole = only.until(is_last).await;
            assert!(whole.iter().all(|change| change["workflow"] == id));
            let middle = text(&whole[whole.len() / 2]["cursor"]);
            let mut rest = Subscription::open(&server, transport, &format!("since={middle}&workflow={id}")).await;
            assert_eq!(rest.until(is_last).await, whole[whole.len() / 2 + 1..]);
            let mut tasks = Subscription::open(&server, transport, "since=start&kind=task").await;
            assert_eq!(tasks.must_next().await["place"]["task"], 0);
        }
    }
}

// FEATURES: B4
#[tokio::test]
async fn the_deletion_of_a_workflow_is_published() {
    let server = Server::start().await;
    let id = start(&server, &of(json!({"a": {"delay": "1ms"}}))).await;
    ended(&server, &id).await;
    assert_eq!(server.delete(&format!("/v1/workflows/{id}")).await.status, 204);
    let mut changes = Subscription::open(&server, Transport::Sse, "since=start&kind=workflow_removed").await;
    assert_eq!(changes.must_next().await["workflow"], id);
    server.get("/v1/events?workflow=x").await.refused(400, "invalid_id");
}
