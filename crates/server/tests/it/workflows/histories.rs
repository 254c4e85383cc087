//! Workflow history, in the order of time.

use serde_json::{Value, json};

use super::{ended, of, run, start, task_in};
use crate::http::Request;
use crate::support::{Server, text};

fn kinds(history: &Value) -> Vec<String> {
    let events = history["items"].as_array().unwrap();
    events
        .iter()
        .map(|event| match event["task"].as_str() {
            Some(task) => format!("{} {task}", text(&event["kind"])),
            None => text(&event["kind"]),
        })
        .collect()
}

// FEATURES: B2
#[tokio::test]
async fn the_history_holds_every_event_in_order() {
    let server = Server::start().await;
    let definition = of(json!({"a": {"wait_for": "go"}, "b": {"needs": "a", "run": {"echo": {"value": 1}}}}));
    let id = start(&server, &definition).await;
    task_in(&server, &id, "a", "listening").await;
    let act = |verb: &str| Request::post(format!("/v1/workflows/{id}/{verb}")).header("outlast-actor", "ann");
    for verb in ["pause", "resume", "signals/go"] {
        server.send(act(verb)).await.expect(200);
    }
    ended(&server, &id).await;
    let history = server.get(&format!("/v1/workflows/{id}/history")).await.expect(200);
    let events = history["items"].as_array().unwrap();
    let times: Vec<String> = events.iter().map(|event| text(&event["at"])).collect();
    assert!(times.is_sorted(), "{history}");
    let kinds = kinds(&history);
    for expected in
        ["started", "task_began a", "paused", "resumed", "task_ended a", "task_began b", "task_ended b", "ended"]
    {
        assert_eq!(kinds.iter().filter(|kind| *kind == expected).count(), 1, "{expected} in {kinds:?}");
    }
    let signalled = events.iter().find(|event| event["kind"] == "signalled").unwrap();
    assert_eq!((&signalled["by"], &signalled["text"]), (&json!("ann"), &json!("go")));
    let last = events.iter().rfind(|event| event["kind"] == "task_ended").unwrap();
    assert_eq!((&last["task"], &last["state"], last["job"].is_string()), (&json!("b"), &json!("succeeded"), true));
    assert_eq!((&history["notes_dropped"], &history["next_cursor"]), (&json!(0), &Value::Null));

    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/workflows/{id}/history?limit=2{cursor}")).await.expect(200);
        seen.extend(page["items"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, *events);
    server.get(&format!("/v1/workflows/{id}/history?cursor=x")).await.refused(400, "invalid_cursor");
}

// FEATURES: D5
#[tokio::test]
async fn a_rollback_is_part_of_the_history() {
    let server = Server::start().await;
    let compensation = json!({"run": {"echo": {"value": "compensated"}}});
    let definition = of(json!({
        "a": {"run": {"echo": {"value": 1}}, "compensation": compensation},
        "b": {"needs": "a", "run": {"echo": {"fail": "fatal"}}},
        "c": {"needs": "b", "run": "true"},
    }));
    let workflow = run(&server, &definition).await;
    let history = server.get(&format!("/v1/workflows/{}/history", text(&workflow["id"]))).await.expect(200);
    let kinds = kinds(&history);
    for expected in ["stopping b", "rollback_began", "compensation a", "rollback_ended", "ended"] {
        assert!(kinds.contains(&expected.to_owned()), "{expected} in {kinds:?}");
    }
    assert!(kinds.contains(&"task_ended c".to_owned()) && !kinds.contains(&"task_began c".to_owned()), "{kinds:?}");
}
