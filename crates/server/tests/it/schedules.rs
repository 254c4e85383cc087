//! Schedules over HTTP: create, trigger, pause, look up by id and name, start by the clock.

use serde_json::{Value, json};

use crate::http::{Reply, Request};
use crate::subscription::{Subscription, Transport};
use crate::support::{Api, Server, text, with};
use crate::workflows::{ended, endless, of, says};

/// A yearly schedule: in a test only a trigger starts it.
fn yearly(name: &str) -> Value {
    json!({"name": name, "cron": "@yearly", "definition": of(json!({"a": says(1)}))})
}

async fn create(api: &Api, schedule: &Value) -> Reply {
    api.post("/v1/schedules", schedule).await
}

// FEATURES: B1
#[tokio::test]
async fn a_schedule_is_created_triggered_and_deleted() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let definition = json!({"name": "nightly", "inputs": {"n": "integer"},
            "tasks": {"a": {"run": {"echo": {"value": "${inputs.n}"}}}}, "outputs": "${tasks.a.result}"});
        let body = json!({"name": "night", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "definition": definition,
            "inputs": {"n": 7}, "catch_up": "all", "overlap": "allow", "jitter_ms": 1000});
        let request = Request::post("/v1/schedules").header("outlast-actor", "ann").json(&body);
        let reply = server.send(request).await;
        let made = reply.expect(201);
        let id = text(&made["id"]);
        assert!(id.starts_with("sch_"));
        assert_eq!(reply.header("location"), Some(format!("/v1/schedules/{id}").as_str()));
        for (field, value) in [
            ("name", json!("night")),
            ("cron", json!("30 2 * * *")),
            ("timezone", json!("Europe/Berlin")),
            ("catch_up", json!("all")),
            ("overlap", json!("allow")),
            ("jitter_ms", json!(1000)),
            ("paused", json!(false)),
            ("workflow", json!("nightly")),
            ("inputs", json!({"n": 7})),
            ("submitter", json!("ann")),
            ("started", json!(0)),
            ("last_slot", Value::Null),
        ] {
            assert_eq!(made[field], value, "{field} of {made}");
        }
        assert!(text(&made["next_slot"]) > text(&made["created_at"]), "{made}");

        let triggered = server.act("/v1/schedules/night/trigger").await.expect(201);
        assert_eq!(triggered["schedule"]["id"], id);
        let workflow = ended(&server, &text(&triggered["id"])).await;
        assert_eq!((&workflow["state"], &workflow["result"]), (&json!("succeeded"), &json!(7)));
        server.restart().await;
        let shown = server.get("/v1/schedules/night").await.expect(200);
        assert_eq!(
            (&shown["id"], &shown["started"], &shown["last_workflow"]),
            (&json!(id), &json!(1), &workflow["id"])
        );
        assert_eq!(server.get(&format!("/v1/schedules/{id}")).await.expect(200), shown);
        assert_eq!(server.listed(&format!("/v1/workflows?schedule={id}"), 10).await, [text(&workflow["id"])]);
        assert_eq!(server.delete(&format!("/v1/schedules/{id}")).await.status, 204);
        server.get("/v1/schedules/night").await.refused(404, "unknown_schedule");
        server.get(&format!("/v1/schedules/{id}")).await.refused(404, "unknown_schedule");
        server.get(&format!("/v1/workflows/{}", text(&workflow["id"]))).await.expect(200);
    }
}

// FEATURES: B1
#[tokio::test]
async fn a_paused_schedule_has_no_next_slot() {
    let server = Server::start().await;
    let made = create(&server, &with(yearly("y"), json!({"paused": true}))).await.expect(201);
    assert_eq!((&made["paused"], &made["next_slot"]), (&json!(true), &Value::Null));
    let resumed = server.act("/v1/schedules/y/resume").await.expect(200);
    assert!(resumed["next_slot"].is_string(), "{resumed}");
    for _ in 0..2 {
        assert_eq!(server.act("/v1/schedules/y/pause").await.expect(200)["paused"], true);
    }
    // A manual trigger works while paused.
    server.act("/v1/schedules/y/trigger").await.expect(201);
}

// FEATURES: B1
#[tokio::test]
async fn a_schedule_name_is_unique_within_a_tenant() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let queue = text(&server.create_queue(&json!({})).await["id"]);
        create(&server, &yearly("y")).await.expect(201);
        let problem = create(&server, &yearly("y")).await.refused(409, "schedule_name_taken");
        assert_eq!(problem["field"], "name");
        // The same holds if its queue is in another shard.
        create(&server, &with(yearly("y"), json!({"queue": queue}))).await.refused(409, "schedule_name_taken");
        create(&server, &with(yearly("y"), json!({"tenant": "acme"}))).await.expect(201);
        let problem = server.get("/v1/schedules/y").await.refused(400, "invalid_parameter");
        assert_eq!(problem["field"], "tenant");
        assert_eq!(server.get("/v1/schedules/y?tenant=acme").await.expect(200)["tenant"], "acme");
        assert_eq!(server.delete("/v1/schedules/y?tenant=acme").await.status, 204);
        server.get("/v1/schedules/y").await.expect(200);
        let api = server.api();
        let made: Vec<_> =
            (0..8).map(|_| tokio::spawn(async move { create(&api, &yearly("z")).await.status })).collect();
        let mut created = 0;
        for status in made {
            created += usize::from(status.await.unwrap() == 201);
        }
        assert_eq!(created, 1);
    }
}

#[tokio::test]
async fn a_schedule_in_a_queue_starts_its_workflows_there() {
    let server = Server::with_shards(4).await;
    let queue = text(&server.create_queue(&json!({"tag": "q"})).await["id"]);
    let made = create(&server, &with(yearly("y"), json!({"queue": queue}))).await.expect(201);
    assert_eq!(made["queue"], queue);
    assert_eq!(server.act("/v1/schedules/y/trigger").await.expect(201)["queue"], queue);
    create(&server, &with(yearly("x"), json!({"queue": "q_0000000000000"}))).await.refused(404, "unknown_queue");
}

#[tokio::test]
async fn an_invalid_schedule_is_refused_and_the_field_is_named() {
    let server = Server::start().await;
    for (change, code, field) in [
        (json!({"cron": "61 * * * *"}), "invalid_schedule", "cron"),
        (json!({"cron": "* * * *"}), "invalid_schedule", "cron"),
        (json!({"cron": "0 0 30 2 *"}), "invalid_schedule", "cron"),
        (json!({"cron": "@dayly"}), "invalid_schedule", "cron"),
        (json!({"timezone": "Europe/Brelin"}), "invalid_schedule", "timezone"),
        (json!({"name": ""}), "invalid_field", "name"),
        (json!({"name": "x".repeat(129)}), "invalid_field", "name"),
        (json!({"name": "sch_x"}), "invalid_field", "name"),
        (json!({"jitter_ms": 86_400_001}), "invalid_field", "jitter_ms"),
        (json!({"catch_up": "some"}), "unknown_field", "catch_up"),
        (json!({"overlap": 1}), "invalid_json", "overlap"),
        (json!({"corn": "x"}), "unknown_field", "corn"),
        (json!({"yaml": "name: x"}), "invalid_field", "yaml"),
    ] {
        let problem = create(&server, &with(yearly("y"), change.clone())).await.refused(400, code);
        assert_eq!(problem["field"], field, "{change}: {problem}");
    }
    let problem = create(&server, &with(yearly("y"), json!({"timezone": "Europe/Brelin"}))).await;
    assert!(text(&problem.refused(400, "invalid_schedule")["detail"]).contains("Europe/Berlin"));
    create(&server, &with(yearly("y"), json!({"definition": {}}))).await.refused(400, "invalid_definition");
    create(&server, &with(yearly("y"), json!({"inputs": {"x": 1}}))).await.refused(400, "invalid_inputs");
    create(&server, &with(yearly("y"), json!({"jitter_ms": 86_400_000}))).await.expect(201);
    for path in ["sch_0000000000001", "none"] {
        server.get(&format!("/v1/schedules/{path}")).await.refused(404, "unknown_schedule");
        server.act(&format!("/v1/schedules/{path}/trigger")).await.refused(404, "unknown_schedule");
        server.delete(&format!("/v1/schedules/{path}")).await.refused(404, "unknown_schedule");
    }
    server.get("/v1/schedules/sch_x").await.refused(400, "invalid_id");
}

#[tokio::test]
async fn schedules_are_listed_page_by_page() {
    let server = Server::with_shards(4).await;
    let mut ids = Vec::new();
    for number in 0..7 {
        let tenant = if number % 2 == 0 { "a" } else { "b" };
        let made = create(&server, &with(yearly(&format!("y{number}")), json!({"tenant": tenant}))).await.expect(201);
        ids.push((text(&made["id"]), tenant));
    }
    ids.sort_unstable();
    let all: Vec<String> = ids.iter().map(|(id, _)| id.clone()).collect();
    for limit in [1, 3, 7, 100] {
        assert_eq!(server.listed("/v1/schedules", limit).await, all, "{limit} at a time");
    }
    let of_a: Vec<String> = ids.iter().filter(|(_, tenant)| *tenant == "a").map(|(id, _)| id.clone()).collect();
    assert_eq!(server.listed("/v1/schedules?tenant=a", 2).await, of_a);
    server.get("/v1/schedules?cursor=x").await.refused(400, "invalid_cursor");
}

#[tokio::test]
async fn changes_of_schedules_are_published_as_events() {
    let server = Server::start().await;
    let id = text(&create(&server, &yearly("y")).await.expect(201)["id"]);
    server.act("/v1/schedules/y/pause").await.expect(200);
    assert_eq!(server.delete("/v1/schedules/y").await.status, 204);
    let mut changes = Subscription::open(&server, Transport::Sse, "since=start").await;
    let seen = changes.until(|change| change["kind"] == "schedule_removed").await;
    let published: Vec<(&str, Option<&str>)> = seen
        .iter()
        .filter(|change| change["schedule"] == id)
        .map(|change| (change["kind"].as_str().unwrap(), change["state"].as_str()))
        .collect();
    assert_eq!(published, [("schedule", Some("active")), ("schedule", Some("paused")), ("schedule_removed", None)]);
}

// FEATURES: B1, D11
#[tokio::test]
async fn a_slot_starts_its_workflow_by_the_clock_exactly_once() {
    let mut server = Server::start().await;
    let every_minute = json!({"name": "m", "cron": "* * * * *", "definition": of(json!({"a": says(1)}))});
    let id = text(&create(&server, &every_minute).await.expect(201)["id"]);
    let path = format!("/v1/schedules/{id}");
    let since = std::time::Instant::now();
    while server.get(&path).await.expect(200)["started"] == 0 {
        assert!(since.elapsed() < std::time::Duration::from_secs(90), "no slot has come due");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    server.act(&format!("{path}/pause")).await.expect(200);
    server.restart().await;
    let shown = server.get(&path).await.expect(200);
    assert_eq!(shown["started"], 1, "{shown}");
    let started = server.listed(&format!("/v1/workflows?schedule={id}"), 10).await;
    assert_eq!(started.len(), 1);
    let workflow = ended(&server, &started[0]).await;
    let slot = text(&workflow["schedule"]["slot"]);
    assert!(slot.ends_with(":00.000Z") && slot <= text(&shown["last_slot"]), "{slot}: {shown}");
}

// FEATURES: B1
#[tokio::test]
async fn runs_of_a_schedule_may_overlap_if_allowed() {
    let server = Server::start().await;
    let slow =
        json!({"name": "slow", "cron": "@yearly", "definition": of(json!({"a": endless()})), "overlap": "allow"});
    create(&server, &slow).await.expect(201);
    let first = text(&server.act("/v1/schedules/slow/trigger").await.expect(201)["id"]);
    let second = text(&server.act("/v1/schedules/slow/trigger").await.expect(201)["id"]);
    assert_ne!(first, second);
    for id in [first, second] {
        assert_eq!(server.get(&format!("/v1/workflows/{id}")).await.expect(200)["state"], "running");
    }
}
