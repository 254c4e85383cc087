//! Queues: create, look up by id or token, drain, cancel, delete, expire.

use serde_json::{Value, json};

use crate::http::Request;
use crate::support::{Server, echo, endless, text, with};

// FEATURES: C4
#[tokio::test]
async fn a_queue_is_created_with_a_tag_and_found_by_id_and_by_token() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let spec = json!({"tag": "nightly", "tenant": "acme", "max_retries": 7, "max_running": 2});
        let reply = server.post("/v1/queues", &spec).await;
        let queue = reply.expect(201);
        let (id, token) = (text(&queue["id"]), text(&queue["token"]));
        assert!(id.starts_with("q_") && token.starts_with("qt_") && token.len() >= 35, "{queue}");
        assert_eq!(reply.header("location"), Some(format!("/v1/queues/{id}").as_str()));
        for (name, value) in spec.as_object().unwrap() {
            assert_eq!(queue[name], *value);
        }
        assert_eq!((&queue["state"], &queue["implicit"]), (&json!("active"), &json!(false)));

        let by_token = server.get(&format!("/v1/queues/{token}")).await.expect(200);
        assert_eq!(by_token, queue);
        let by_id = server.get(&format!("/v1/queues/{id}")).await.expect(200);
        assert!(by_id.get("token").is_none(), "a lookup by id does not show the token");
        assert_eq!(by_id["tag"], "nightly");

        let default = server.create_queue(&json!({})).await;
        assert_eq!((&default["max_retries"], &default["max_running"]), (&json!(3), &json!(null)));
        assert_eq!((&default["tenant"], &default["tag"]), (&json!("default"), &json!("")));
    }
}

#[tokio::test]
async fn queues_are_listed_page_by_page_without_their_tokens() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let mut made = Vec::new();
        for _ in 0..7 {
            made.push(text(&server.create_queue(&json!({})).await["id"]));
        }
        made.sort();
        for limit in [1, 3, 7, 100] {
            assert_eq!(server.listed("/v1/queues", limit).await, made, "in pages of {limit}");
        }
        let page = server.get("/v1/queues").await.expect(200);
        assert!(page["items"].as_array().unwrap().iter().all(|queue| queue.get("token").is_none()));
    }
}

// FEATURES: C4
#[tokio::test]
async fn jobs_without_a_queue_are_in_the_implicit_queue_of_their_tenant() {
    let server = Server::start().await;
    let job = server.run(&echo(1)).await;
    let other = server.run(&with(echo(1), json!({"tenant": "acme"}))).await;
    assert_ne!(job["queue"], other["queue"]);
    let path = format!("/v1/queues/{}", text(&job["queue"]));
    let queue = server.get(&path).await.expect(200);
    assert_eq!((&queue["implicit"], &queue["counters"]["succeeded"]), (&json!(true), &json!(1)));
    for action in ["drain", "cancel"] {
        server.act(&format!("{path}/{action}")).await.refused(409, "queue_implicit");
    }
    server.delete(&path).await.refused(409, "queue_implicit");
    assert_eq!(server.run(&echo(2)).await["queue"], job["queue"]);
}

// FEATURES: C4
#[tokio::test]
async fn a_draining_queue_finishes_its_jobs_and_accepts_no_more() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let queue = text(&server.create_queue(&json!({"max_running": 1})).await["token"]);
        let path = format!("/v1/queues/{queue}");
        let job = json!({"run": {"echo": {"delay_ms": 20}}});
        let mut jobs = Vec::new();
        for _ in 0..3 {
            jobs.push(text(&server.post(&format!("{path}/jobs"), &job).await.expect(201)["id"]));
        }
        assert_eq!(server.act(&format!("{path}/drain")).await.expect(200)["state"], "draining");
        assert_eq!(server.act(&format!("{path}/drain")).await.expect(200)["state"], "draining");
        server.post(&format!("{path}/jobs"), &job).await.refused(409, "queue_closed");
        for id in jobs {
            assert_eq!(server.ended(&id).await["state"], "succeeded");
        }
        let queue = server.get(&path).await.expect(200);
        assert_eq!((&queue["counters"]["active"], &queue["counters"]["succeeded"]), (&json!(0), &json!(3)));
    }
}

// FEATURES: C4
#[tokio::test]
async fn a_cancelled_queue_cancels_all_its_jobs_and_stays_cancelled() {
    for (shards, count) in [(1, 2500), (4, 40)] {
        let server = Server::with_shards(shards).await;
        let queue = text(&server.create_queue(&json!({"max_running": 20})).await["id"]);
        let path = format!("/v1/queues/{queue}");
        let answer = server.post(&format!("{path}/jobs"), &json!({"jobs": vec![endless(); count]})).await.expect(200);
        let first = text(&answer["results"][0]["id"]);
        server.job_in(&first, "running").await;
        server.act(&format!("{path}/drain")).await.expect(200);
        assert_eq!(server.act(&format!("{path}/cancel")).await.expect(200)["state"], "cancelled");
        let done = server.seen(&path, |queue| queue["counters"]["active"] == 0).await;
        assert_eq!(done["counters"]["cancelled"], count);
        assert_eq!(server.listed(&format!("{path}/jobs?state=cancelled"), 1000).await.len(), count);
        assert_eq!(server.job(&first).await["reason"], "queue_cancelled");
        assert_eq!(server.act(&format!("{path}/drain")).await.expect(200)["state"], "cancelled", "cancel is final");
        server.post(&format!("{path}/jobs"), &echo(1)).await.refused(409, "queue_closed");
    }
}

// FEATURES: C4
#[tokio::test]
async fn a_queue_without_live_jobs_can_be_deleted_and_its_jobs_stay() {
    let server = Server::with_shards(4).await;
    let queue = server.create_queue(&json!({})).await;
    let (id, token) = (text(&queue["id"]), text(&queue["token"]));
    let path = format!("/v1/queues/{id}");
    let done = server.run(&with(echo(1), json!({"queue": id}))).await;
    let live = server.submit(&with(endless(), json!({"queue": id}))).await;
    let problem = server.delete(&path).await.refused(409, "queue_not_empty");
    assert!(text(&problem["detail"]).contains('1'), "{problem}");
    server.act(&format!("/v1/jobs/{live}/cancel")).await.expect(200);
    server.ended(&live).await;
    assert_eq!(server.delete(&format!("/v1/queues/{token}")).await.status, 204);
    for name in [&id, &token] {
        server.get(&format!("/v1/queues/{name}")).await.refused(404, "unknown_queue");
    }
    server.delete(&path).await.refused(404, "unknown_queue");
    server.post("/v1/jobs", &with(echo(1), json!({"queue": id}))).await.refused(404, "unknown_queue");
    assert_eq!(server.job(&text(&done["id"])).await, done);
    assert_eq!(server.listed(&format!("{path}/jobs"), 10).await, [live, text(&done["id"])]);
}

// FEATURES: C4
#[tokio::test]
async fn a_queue_counts_its_jobs_by_state() {
    let server = Server::start().await;
    let id = text(&server.create_queue(&json!({"max_retries": 1})).await["id"]);
    let path = format!("/v1/queues/{id}");
    let jobs = [
        echo(1),
        echo(2),
        json!({"run": {"echo": {"fail": "error"}}}),
        json!({"run": {"echo": {"fail": "fatal"}}}),
        with(endless(), json!({"timeout_ms": 20})),
    ];
    for job in jobs {
        server.run(&with(job, json!({"queue": id}))).await;
    }
    let live = server.submit(&with(endless(), json!({"queue": id}))).await;
    let cancelled = server.submit(&with(endless(), json!({"queue": id}))).await;
    server.act(&format!("/v1/jobs/{cancelled}/cancel")).await.expect(200);
    server.ended(&cancelled).await;
    let counters = json!({"active": 1, "succeeded": 2, "failed": 2, "timed_out": 1, "cancelled": 1,
                          "denied": 0, "quarantined": 0, "abandoned": 0});
    assert_eq!(server.get(&path).await.expect(200)["counters"], counters);
    server.job_in(&live, "running").await;
    assert_eq!(server.listed(&format!("{path}/running"), 1).await, [live.as_str()]);
    assert_eq!(server.listed(&format!("{path}/completed"), 2).await.len(), 6);
    assert_eq!(server.listed(&format!("{path}/history"), 2).await.len(), 7);
    assert_eq!(server.listed(&format!("{path}/jobs"), 2).await.len(), 7);
    assert_eq!(server.listed(&format!("{path}/jobs?state=failed,timed_out"), 2).await.len(), 3);
}

// FEATURES: C4
#[tokio::test]
async fn concurrent_jobs_of_a_queue_do_not_exceed_max_running() {
    let server = Server::start().await;
    let id = text(&server.create_queue(&json!({"max_running": 3})).await["id"]);
    let jobs = vec![json!({"run": {"echo": {"delay_ms": 15}}}); 30];
    let path = format!("/v1/queues/{id}/jobs");
    let answer = server.post(&path, &json!({"jobs": jobs})).await.expect(200);
    let mut spans = Vec::new();
    for result in answer["results"].as_array().unwrap() {
        let id = text(&result["id"]);
        server.ended(&id).await;
        let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
        let attempt = &history["attempts"][0];
        spans.push((text(&attempt["dispatched_at"]), text(&attempt["ended_at"])));
    }
    for (start, _) in &spans {
        let concurrent = spans.iter().filter(|(other, end)| other <= start && start < end).count();
        assert!(concurrent <= 3, "{concurrent} jobs at {start}");
    }
}

// FEATURES: C4
#[tokio::test]
async fn an_idle_queue_expires_and_a_queue_with_live_jobs_does_not() {
    let server = Server::with(|options| options.queue_idle_ms = 500).await;
    let idle = server.create_queue(&json!({})).await;
    let busy = text(&server.create_queue(&json!({})).await["id"]);
    let job = server.submit(&with(endless(), json!({"queue": busy}))).await;
    let queues = server.seen("/v1/queues", |page| page["items"].as_array().unwrap().len() == 1).await;
    assert_eq!(queues["items"][0]["id"], busy);
    server.get(&format!("/v1/queues/{}", text(&idle["token"]))).await.refused(404, "unknown_queue");
    server.act(&format!("/v1/jobs/{job}/cancel")).await.expect(200);
    server.seen("/v1/queues", |page| page["items"].as_array().unwrap().is_empty()).await;
    assert_eq!(server.job(&job).await["queue"], busy, "the job outlives its queue");
}

#[tokio::test]
async fn a_job_with_another_queue_than_its_path_is_refused() {
    let server = Server::start().await;
    let one = text(&server.create_queue(&json!({})).await["id"]);
    let other = text(&server.create_queue(&json!({})).await["id"]);
    let job = with(echo(1), json!({"queue": other}));
    let problem = server.post(&format!("/v1/queues/{one}/jobs"), &job).await.refused(400, "invalid_field");
    assert_eq!(problem["field"], "queue");
    server.post(&format!("/v1/queues/{other}/jobs"), &job).await.expect(201);
}

async fn create_keyed(server: &Server, key: &str, spec: &Value) -> crate::http::Reply {
    server.send(Request::post("/v1/queues").header("idempotency-key", key).json(spec)).await
}

#[tokio::test]
async fn an_idempotency_key_creates_one_queue() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let spec = json!({"tag": "once"});
        let made = create_keyed(&server, "k", &spec).await.expect(201);
        let again = create_keyed(&server, "k", &spec).await.expect(200);
        assert_eq!(again, with(made.clone(), json!({"deduplicated": true})));
        create_keyed(&server, "k", &json!({"tag": "other"})).await.refused(409, "idempotency_conflict");
        // Jobs have their own key space.
        let job = Request::post("/v1/jobs").header("idempotency-key", "k").json(&echo(1));
        server.send(job).await.expect(201);
        server.restart().await;
        assert_eq!(create_keyed(&server, "k", &spec).await.expect(200), again);
        assert_eq!(server.delete(&format!("/v1/queues/{}", text(&made["id"]))).await.status, 204);
        create_keyed(&server, "k", &spec).await.refused(409, "idempotency_gone");
    }
}

/// A lingering attempt occupies its slot until its process has ended.
#[tokio::test]
async fn a_timed_out_attempt_occupies_its_slot_until_its_process_has_ended() {
    let server = Server::with(|options| options.stop_grace_ms = 300).await;
    let queue = server.create_queue(&json!({"max_running": 1})).await;
    let ignores_sigterm = json!({"command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]});
    let job = json!({"run": {"process": ignores_sigterm}, "sandbox": "none", "queue": queue["id"], "timeout_ms": 100});
    let (first, second) = (server.submit(&job).await, server.submit(&job).await);
    assert_eq!(server.ended(&first).await["state"], "timed_out");
    assert_eq!(server.ended(&second).await["state"], "timed_out");
    let attempt = |history: Value| history["attempts"][0].clone();
    let first = attempt(server.get(&format!("/v1/jobs/{first}/history")).await.expect(200));
    let second = attempt(server.get(&format!("/v1/jobs/{second}/history")).await.expect(200));
    assert_eq!((&first["end"], &first["signal"]), (&json!("stopped"), &json!(9)));
    assert!(text(&first["ended_at"]) <= text(&second["dispatched_at"]), "{first} {second}");
}
