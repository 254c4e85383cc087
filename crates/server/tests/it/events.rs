//! Every change in order, with filters, from any place that is still kept.

use serde_json::{Value, json};

use crate::common::{Api, Server, echo, text, with};
use crate::http::Request;
use crate::subscription::{Subscription, Transport};

/// The states that changes tell of, in order.
fn told(changes: &[Value]) -> Vec<String> {
    changes.iter().map(|change| text(&change["state"])).collect()
}

fn is_end_of(job: &str) -> impl Fn(&Value) -> bool {
    move |change| change["job"] == job && change["state"] == "succeeded"
}

// FEATURES: B4
#[tokio::test]
async fn every_state_of_a_job_is_told_in_order() {
    for (shards, transport) in
        [(1, Transport::Sse), (4, Transport::Sse), (1, Transport::Socket), (4, Transport::Socket)]
    {
        let server = Server::with_shards(shards).await;
        let mut changes = Subscription::open(&server, transport, "kind=job").await;
        let id = server.submit(&json!({"run": {"echo": {"value": 1, "delay_ms": 1}}})).await;
        let seen = changes.until(is_end_of(&id)).await;
        assert_eq!(told(&seen), ["pending", "scheduled", "dispatched", "running", "succeeded"]);
        let job = server.job(&id).await;
        for (change, entry) in seen.iter().zip(job["states"].as_array().unwrap()) {
            assert_eq!((&change["job"], &change["queue"]), (&job["id"], &job["queue"]));
            assert_eq!((&change["state"], &change["at"]), (&entry["state"], &entry["at"]));
        }
        assert_eq!(seen.last().unwrap()["attempt"], 1);
    }
}

// FEATURES: C17
#[tokio::test]
async fn what_has_been_told_can_be_read() {
    let server = Server::start().await;
    let mut changes = Subscription::open(&server, Transport::Socket, "kind=job").await;
    for _ in 0..20 {
        let id = server.submit(&echo(1)).await;
        changes.until(is_end_of(&id)).await;
        assert_eq!(server.job(&id).await["state"], "succeeded");
    }
}

#[tokio::test]
async fn a_subscriber_gets_what_it_asks_for() {
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
        let seen = open(&format!("job={inside}")).await.until(|change| change["kind"] == "job_removed").await;
        assert!(seen.iter().all(|change| change["job"] == inside));
        assert_eq!(seen.len(), 6);
        let seen = open(&format!("queue={queue}")).await.until(|change| change["kind"] == "queue_removed").await;
        assert_eq!(seen[0]["kind"], "queue");
        assert!(seen.iter().all(|change| change["queue"] == queue));
        assert_eq!(seen.len(), 8);
        assert_eq!(open("kind=queue_removed").await.must_next().await["queue"], queue);
        let seen = open("kind=queue").await.until(|change| change["queue"] == other).await;
        assert!(seen.iter().all(|change| change["kind"] == "queue"));
        let seen = open(&format!("kind=job&queue={queue}&job={inside}")).await.until(is_end_of(&inside)).await;
        assert_eq!(seen.len(), 5);
        // Both must fit: of a job that is in another queue nothing is told.
        let mut none = open(&format!("queue={queue}&job={outside}")).await;
        let told = tokio::time::timeout(std::time::Duration::from_millis(100), none.next()).await;
        assert!(told.is_err(), "{told:?}");
        server.get(&format!("/v1/events?queue={token}")).await.refused(404, "unknown_queue");
    }
}

/// Reads all changes of jobs, a few at a time, each time on a new connection.
async fn read_in_parts(server: &Server, transport: Transport, total: usize, part: usize) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    while seen.len() < total {
        let since = seen.last().map_or("start".to_owned(), |last| text(&last["cursor"]));
        let mut changes = Subscription::open(server, transport, &format!("kind=job&since={since}")).await;
        for _ in 0..part.min(total - seen.len()) {
            seen.push(changes.must_next().await);
        }
    }
    seen
}

// FEATURES: B4
#[tokio::test]
async fn who_comes_back_with_a_cursor_misses_nothing_and_hears_nothing_twice() {
    for transport in Transport::BOTH {
        for shards in [1, 4] {
            let server = Server::with_shards(shards).await;
            let jobs = vec![echo(1); 20];
            let answer = server.post("/v1/jobs", &json!({"jobs": jobs})).await.expect(200);
            for result in answer["results"].as_array().unwrap() {
                server.ended(&text(&result["id"])).await;
            }
            let whole = read_in_parts(&server, transport, 100, 100).await;
            assert_eq!(whole.iter().filter(|change| change["state"] == "succeeded").count(), 20);
            for part in [1, 7] {
                assert_eq!(read_in_parts(&server, transport, 100, part).await, whole);
            }
        }
    }
}

// FEATURES: B4, B7
#[tokio::test]
async fn a_cursor_holds_across_a_restart() {
    for transport in Transport::BOTH {
        let mut server = Server::with_shards(4).await;
        let first = server.submit(&echo(1)).await;
        server.ended(&first).await;
        let mut changes = Subscription::open(&server, transport, "since=start&kind=job").await;
        let mut seen = vec![changes.must_next().await, changes.must_next().await];
        let live = server.submit(&json!({"run": {"echo": {"delay_ms": 500}}})).await;
        server.job_in(&live, "running").await;
        server.restart().await;
        while changes.next().await.is_some() {}
        let query = format!("kind=job&since={}", text(&seen[1]["cursor"]));
        let mut changes = Subscription::open(&server, transport, &query).await;
        seen.extend(changes.until(is_end_of(&live)).await);
        let of = |id: &str| -> Vec<Value> { seen.iter().filter(|change| change["job"] == id).cloned().collect() };
        assert_eq!(told(&of(&first)), ["pending", "scheduled", "dispatched", "running", "succeeded"]);
        let states = told(&of(&live));
        let twice = ["scheduled", "dispatched", "running"];
        assert_eq!(states, [&["pending"][..], &twice, &twice, &["succeeded"]].concat());
    }
}

#[tokio::test]
async fn a_browser_comes_back_by_its_header() {
    let server = Server::start().await;
    let id = server.submit(&echo(1)).await;
    server.ended(&id).await;
    let mut changes = Subscription::open(&server, Transport::Sse, "since=start&kind=job").await;
    let first = changes.must_next().await;
    let second = changes.must_next().await;
    let back = Request::get("/v1/events?since=start&kind=job").header("last-event-id", &text(&first["cursor"]));
    let answer = back.open(server.address).await;
    let mut changes = Subscription::Sse { answer, unread: String::new() };
    assert_eq!(changes.must_next().await, second);
}

#[tokio::test]
async fn a_stop_ends_subscriptions() {
    for transport in Transport::BOTH {
        let mut server = Server::start().await;
        let mut changes = Subscription::open(&server, transport, "").await;
        server.stop().await;
        while changes.next().await.is_some() {}
    }
}

#[tokio::test]
async fn what_is_no_cursor_is_refused() {
    let server = Server::start().await;
    server.run(&echo(1)).await;
    for since in ["yesterday", "e", "e1", "e1-", "e-1", "c0000000000001", "e1-1-1", "1"] {
        server.get(&format!("/v1/events?since={since}")).await.refused(400, "invalid_cursor");
    }
    // A place that this server has not come to yet was never given out by it.
    server.get("/v1/events?since=effffffffff-0").await.refused(400, "invalid_cursor");
    server.get("/v1/events?kind=jobs").await.refused(400, "invalid_parameter");
    server.get("/v1/events?job=q_0000000000000").await.refused(400, "invalid_id");
}

#[tokio::test]
async fn a_cursor_that_is_too_old_is_said_to_be() {
    let mut server = Server::with(|options| (options.events_keep_bytes, options.events_keep_ms) = (0, 0)).await;
    let id = server.submit(&echo(1)).await;
    server.ended(&id).await;
    let mut changes = Subscription::open(&server, Transport::Sse, "since=start&kind=job").await;
    let old = text(&changes.must_next().await["cursor"]);
    drop(changes);
    server.restart().await;
    let path = format!("/v1/events?since={old}");
    let since = std::time::Instant::now();
    let expired = loop {
        // Old changes are let go in the background.
        let answer = Request::get(&path).open(server.address).await;
        if answer.status != 200 {
            break Request::get(&path).send(server.address).await;
        }
        assert!(since.elapsed() < crate::http::DEADLINE, "the old changes are kept");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let problem = expired.refused(410, "cursor_expired");
    assert!(text(&problem["detail"]).to_lowercase().contains("read the current state"), "{problem}");
    // From the beginning of what is kept it goes on.
    let mut changes = Subscription::open(&server, Transport::Sse, "since=start&kind=job").await;
    let id = server.submit(&echo(1)).await;
    changes.until(is_end_of(&id)).await;
}

async fn subscribers(api: &Api) -> u64 {
    api.metric("outlast_subscribers").await
}

#[tokio::test]
async fn subscribers_have_a_limit_and_leave_their_place_when_they_go() {
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
    // That they are gone is noticed when there is something to tell them, or with the next sign of life.
    let since = std::time::Instant::now();
    while subscribers(&server).await > 998 {
        assert!(since.elapsed() < crate::http::DEADLINE, "they are still counted");
        server.run(&echo(1)).await;
    }
    Subscription::open(&server, Transport::Sse, "").await;
}
