//! Event stream over SSE and WebSocket: order, filters, and resumption from any retained cursor.

use serde_json::{Value, json};

use crate::http::Request;
use crate::subscription::{Subscription, Transport};
use crate::support::{Api, Server, echo, text, with};

/// The states in a list of events, in order.
fn states_of(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| text(&event["state"])).collect()
}

fn is_end_of(job: &str) -> impl Fn(&Value) -> bool {
    move |event| event["job"] == job && event["state"] == "succeeded"
}

// FEATURES: B4
#[tokio::test]
async fn every_state_of_a_job_is_sent_in_order() {
    for (shards, transport) in
        [(1, Transport::Sse), (4, Transport::Sse), (1, Transport::Socket), (4, Transport::Socket)]
    {
        let server = Server::with_shards(shards).await;
        let mut events = Subscription::open(&server, transport, "kind=job").await;
        let id = server.submit(&json!({"run": {"echo": {"value": 1, "delay_ms": 1}}})).await;
        let seen = events.until(is_end_of(&id)).await;
        assert_eq!(states_of(&seen), ["pending", "scheduled", "dispatched", "running", "succeeded"]);
        let job = server.job(&id).await;
        for (event, entry) in seen.iter().zip(job["states"].as_array().unwrap()) {
            assert_eq!((&event["job"], &event["queue"]), (&job["id"], &job["queue"]));
            assert_eq!((&event["state"], &event["at"]), (&entry["state"], &entry["at"]));
        }
        assert_eq!(seen.last().unwrap()["attempt"], 1);
    }
}

// FEATURES: C17
#[tokio::test]
async fn a_state_sent_in_an_event_can_be_read() {
    let server = Server::start().await;
    let mut events = Subscription::open(&server, Transport::Socket, "kind=job").await;
    for _ in 0..20 {
        let id = server.submit(&echo(1)).await;
        events.until(is_end_of(&id)).await;
        assert_eq!(server.job(&id).await["state"], "succeeded");
    }
}

#[tokio::test]
async fn filters_select_events_by_kind_queue_and_job() {
    for transport in Transport::BOTH {
        let server = Server::with_shards(4).await;
        let queue = server.create_queue(&json!({})).await;
        let (queue, token) = (text(&queue["id"]), text(&queue["token"]));
        let inside = server.submit(&with(echo(1), json!({"queue": queue}))).await;
        let outside = server.submit(&echo(1)).await;
        server.ended(&inside).await;
        server.ended(&outside).await;
        assert_eq!(server.delete(&format!("/v1/jobs/{inside}")).await.status, 204);
        assert_eq!(server.delete(&format!("/v1/queues/{queue}")).await.status, 204);
        let other = text(&server.create_queue(&json!({})).await["id"]);
        let open = async |query: &str| Subscription::open(&server, transport, &format!("since=start&{query}")).await;
        let seen = open(&format!("job={inside}")).await.until(|event| event["kind"] == "job_removed").await;
        assert!(seen.iter().all(|event| event["job"] == inside));
        assert_eq!(seen.len(), 6);
        let seen = open(&format!("queue={queue}")).await.until(|event| event["kind"] == "queue_removed").await;
        assert_eq!(seen[0]["kind"], "queue");
        assert!(seen.iter().all(|event| event["queue"] == queue));
        assert_eq!(seen.len(), 8);
        assert_eq!(open("kind=queue_removed").await.must_next().await["queue"], queue);
        let seen = open("kind=queue").await.until(|event| event["queue"] == other).await;
        assert!(seen.iter().all(|event| event["kind"] == "queue"));
        let seen = open(&format!("kind=job&queue={queue}&job={inside}")).await.until(is_end_of(&inside)).await;
        assert_eq!(seen.len(), 5);
        // Filters are combined with AND: a job of another queue yields no events.
        let mut none = open(&format!("queue={queue}&job={outside}")).await;
        let received = tokio::time::timeout(std::time::Duration::from_millis(100), none.next()).await;
        assert!(received.is_err(), "{received:?}");
        server.get(&format!("/v1/events?queue={token}")).await.refused(404, "unknown_queue");
    }
}

/// Reads `total` job events, `part` per connection.
async fn read_in_parts(server: &Server, transport: Transport, total: usize, part: usize) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    while seen.len() < total {
        let since = seen.last().map_or("start".to_owned(), |last| text(&last["cursor"]));
        let mut events = Subscription::open(server, transport, &format!("kind=job&since={since}")).await;
        for _ in 0..part.min(total - seen.len()) {
            seen.push(events.must_next().await);
        }
    }
    seen
}

// FEATURES: B4
#[tokio::test]
async fn resuming_from_a_cursor_neither_loses_nor_repeats_events() {
    for transport in Transport::BOTH {
        for shards in [1, 4] {
            let server = Server::with_shards(shards).await;
            let jobs = vec![echo(1); 20];
            let answer = server.post("/v1/jobs", &json!({"jobs": jobs})).await.expect(200);
            for result in answer["results"].as_array().unwrap() {
                server.ended(&text(&result["id"])).await;
            }
            let whole = read_in_parts(&server, transport, 100, 100).await;
            assert_eq!(whole.iter().filter(|event| event["state"] == "succeeded").count(), 20);
            for part in [1, 7] {
                assert_eq!(read_in_parts(&server, transport, 100, part).await, whole);
            }
        }
    }
}

// FEATURES: B4, B7
#[tokio::test]
async fn a_cursor_stays_valid_across_a_restart() {
    for transport in Transport::BOTH {
        let mut server = Server::with_shards(4).await;
        let first = server.submit(&echo(1)).await;
        server.ended(&first).await;
        let mut events = Subscription::open(&server, transport, "since=start&kind=job").await;
        let mut seen = vec![events.must_next().await, events.must_next().await];
        let live = server.submit(&json!({"run": {"echo": {"delay_ms": 500}}})).await;
        server.job_in(&live, "running").await;
        server.restart().await;
        while events.next().await.is_some() {}
        let query = format!("kind=job&since={}", text(&seen[1]["cursor"]));
        let mut events = Subscription::open(&server, transport, &query).await;
        seen.extend(events.until(is_end_of(&live)).await);
        let of = |id: &str| -> Vec<Value> { seen.iter().filter(|event| event["job"] == id).cloned().collect() };
        assert_eq!(states_of(&of(&first)), ["pending", "scheduled", "dispatched", "running", "succeeded"]);
        let states = states_of(&of(&live));
        let twice = ["scheduled", "dispatched", "running"];
        assert_eq!(states, [&["pending"][..], &twice, &twice, &["succeeded"]].concat());
    }
}

#[tokio::test]
async fn the_last_event_id_header_resumes_a_stream() {
    let server = Server::start().await;
    let id = server.submit(&echo(1)).await;
    server.ended(&id).await;
    let mut events = Subscription::open(&server, Transport::Sse, "since=start&kind=job").await;
    let first = events.must_next().await;
    let second = events.must_next().await;
    let resumed = Request::get("/v1/events?since=start&kind=job").header("last-event-id", &text(&first["cursor"]));
    let answer = resumed.open(server.address).await;
    let mut events = Subscription::Sse { answer, unread: String::new() };
    assert_eq!(events.must_next().await, second);
}

#[tokio::test]
async fn stopping_the_server_ends_subscriptions() {
    for transport in Transport::BOTH {
        let mut server = Server::start().await;
        let mut events = Subscription::open(&server, transport, "").await;
        server.stop().await;
        while events.next().await.is_some() {}
    }
}

#[tokio::test]
async fn invalid_cursors_and_filters_are_refused() {
    let server = Server::start().await;
    server.run(&echo(1)).await;
    for since in ["yesterday", "e", "e1", "e1-", "e-1", "c0000000000001", "e1-1-1", "1"] {
        server.get(&format!("/v1/events?since={since}")).await.refused(400, "invalid_cursor");
    }
    // A cursor ahead of the stream, or of another store: the client reads the state anew, as after an expiry.
    server.get("/v1/events?since=effffffffff-0").await.refused(410, "cursor_expired");
    server.get("/v1/events?since=e1.1-0").await.refused(410, "cursor_expired");
    server.get("/v1/events?kind=jobs").await.refused(400, "invalid_parameter");
    server.get("/v1/events?job=q_0000000000000").await.refused(400, "invalid_id");
}

#[tokio::test]
async fn an_expired_cursor_is_refused_with_cursor_expired() {
    let mut server = Server::with(|options| (options.events_keep_bytes, options.events_keep_ms) = (0, 0)).await;
    let id = server.submit(&echo(1)).await;
    server.ended(&id).await;
    let mut events = Subscription::open(&server, Transport::Sse, "since=start&kind=job").await;
    let old = text(&events.must_next().await["cursor"]);
    drop(events);
    server.restart().await;
    let path = format!("/v1/events?since={old}");
    let since = std::time::Instant::now();
    let expired = loop {
        // Old events are deleted in the background.
        let answer = Request::get(&path).open(server.address).await;
        if answer.status != 200 {
            break Request::get(&path).send(server.address).await;
        }
        assert!(since.elapsed() < crate::http::DEADLINE, "the old events were not deleted");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let problem = expired.refused(410, "cursor_expired");
    assert!(text(&problem["detail"]).to_lowercase().contains("read the current state"), "{problem}");
    // The oldest retained event is still a valid start.
    let mut events = Subscription::open(&server, Transport::Sse, "since=start&kind=job").await;
    let id = server.submit(&echo(1)).await;
    events.until(is_end_of(&id)).await;
}

async fn subscribers(api: &Api) -> u64 {
    api.metric("outlast_subscribers").await
}

#[tokio::test]
async fn the_subscriber_limit_counts_only_open_subscriptions() {
    let server = Server::start().await;
    let mut all = Vec::new();
    for _ in 0..1000 {
        all.push(Subscription::open(&server, Transport::Sse, "job=job_0000000000001").await);
    }
    assert_eq!(subscribers(&server).await, 1000);
    let reply = server.get("/v1/events").await;
    reply.refused(429, "too_many_subscribers");
    assert!(reply.header("retry-after").is_some());
    all.truncate(998);
    // A closed connection is noticed when the next event or keep-alive is sent.
    let since = std::time::Instant::now();
    while subscribers(&server).await > 998 {
        assert!(since.elapsed() < crate::http::DEADLINE, "closed subscriptions are still counted");
        server.run(&echo(1)).await;
    }
    Subscription::open(&server, Transport::Sse, "").await;
}
