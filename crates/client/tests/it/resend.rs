//! Requests that got no answer: sent again to the same or another server, without being executed twice.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::{ApprovalRequest, QueueSpec, WorkflowStart};
use bytes::Bytes;
use client::jobs::SubmitOptions;
use client::{Client, Error, Options};
use model::id::{JobId, WorkflowId};
use model::spec::{EchoRun, JobSpec, Run};
use tokio::net::TcpListener;

use crate::test_server::{Reaction, Request, TestServer, json};

const DEADLINE: Duration = Duration::from_secs(30);
const BATCH: &str = r#"{"results":[]}"#;
const ACCEPTED: &str =
    r#"{"id":"job_0000000000001","seq":1,"state":"pending","created_at":"2026-01-01T00:00:00Z","deduplicated":true}"#;
const JOB: &str = r#"{"id":"job_0000000000001","seq":1,"state":"succeeded","reason":null,"message":null,
    "queue":"q_0000000000002","attempt":1,"retries":0,"created_at":"2026-01-01T00:00:00Z",
    "states":[{"state":"succeeded","at":"2026-01-01T00:00:01Z"}],"runner":null,"exit_code":0,"signal":null,
    "cpu_seconds":0.5,"memory_peak_bytes":1,"result":1,"eligible_at":null,"topic":"default","tenant":"default",
    "priority":"interactive","run":{"echo":{"value":1,"delay_ms":0}},"timeout_ms":null,"deadline":null,
    "not_before":null,"max_retries":3,"labels":{},"sandbox":null,"idempotency_key":null}"#;

fn problem(status: u16, code: &str) -> Reaction {
    let body = format!(r#"{{"type":"x","title":"x","status":{status},"detail":"no","code":"{code}"}}"#);
    json(&format!("{status} x"), &body)
}

/// A response of a server that names its generation.
fn of_generation(generation: u32, status: &str, body: &str) -> Reaction {
    let head = format!("HTTP/1.1 {status}\r\nOutlast-Generation: node_1.{generation}\r\n");
    Reaction::Send(format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

fn other_generation(generation: u32) -> Reaction {
    let body = r#"{"type":"x","title":"x","status":412,"detail":"no","code":"other_generation"}"#;
    of_generation(generation, "412 Precondition Failed", body)
}

/// The requests that change something.
fn changes(server: &TestServer) -> Vec<Request> {
    server.requests().into_iter().filter(|request| !request.line.starts_with("GET ")).collect()
}

fn client(servers: &[&str]) -> Client {
    Client::new(&servers.join(",")).unwrap()
}

fn impatient(url: &str) -> Client {
    let limit = Duration::from_millis(150);
    Client::with_options(url, Options { resend_for: limit, connect_wait: limit, ..Options::default() }).unwrap()
}

async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

fn half_response() -> Reaction {
    Reaction::SendAndBreak(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", JOB.len(), &JOB[..100]))
}

/// The ways in which the first attempt of a request fails.
const FAILURES: [fn() -> Reaction; 4] =
    [|| Reaction::Break, half_response, || problem(503, "not_ready"), || problem(503, "stopping")];

// FEATURES: A14
#[tokio::test]
async fn a_read_is_repeated_wherever_its_connection_breaks() {
    for failure in FAILURES {
        let server =
            TestServer::start(move |number, _| if number == 0 { failure() } else { json("200 OK", JOB) }).await;
        assert_eq!(client(&[&server.url]).job(JobId(1)).await.unwrap().id, JobId(1));
        assert_eq!(server.requests().len(), 2);
    }
    let server = TestServer::start_at("127.0.0.1:0", 2, |_, _| json("200 OK", JOB)).await;
    client(&[&server.url]).job(JobId(1)).await.unwrap();
    assert_eq!((server.connections(), server.requests().len()), (3, 1));
}

// FEATURES: A14
#[tokio::test]
async fn a_silent_server_is_asked_again() {
    let server = TestServer::start(|number, _| if number == 0 { Reaction::Hang } else { json("200 OK", JOB) }).await;
    let options = Options { timeout: Duration::from_millis(50), ..Options::default() };
    let client = Client::with_options(&server.url, options).unwrap();
    client.cancel(JobId(1)).await.unwrap();
    let ids: Vec<_> =
        server.requests().iter().map(|request| request.header("outlast-request-id").unwrap().to_owned()).collect();
    assert_eq!((ids.len(), &ids[0]), (2, &ids[1]));
}

// FEATURES: A14
#[tokio::test]
async fn a_submit_without_a_key_gets_one_and_is_repeated_with_it() {
    let server =
        TestServer::start(|number, _| if number == 0 { Reaction::Break } else { json("200 OK", ACCEPTED) }).await;
    let client = client(&[&server.url]);
    let spec = JobSpec::new(Run::Echo(EchoRun::default()));
    let accepted = client.submit(&spec).await.unwrap();
    assert!(!accepted.deduplicated, "the first attempt of this call created the job");
    client.submit(&spec).await.unwrap();
    let keys: Vec<_> =
        server.requests().iter().map(|request| request.header("idempotency-key").unwrap().to_owned()).collect();
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[1], keys[2], "each call has its own");
    assert!(client::is_generated_key(&keys[0]), "{keys:?}");
    assert!(server.requests().iter().all(|request| request.header("outlast-request-id").is_none()));
    let own = SubmitOptions { idempotency_key: Some("mine".to_owned()), queue: None };
    assert!(client.submit_raw(Bytes::from_static(b"{}"), &own).await.unwrap().deduplicated);
    assert_eq!(server.requests()[3].header("idempotency-key"), Some("mine"));
}

#[tokio::test]
async fn workflows_and_queues_have_a_key() {
    let server = TestServer::start(|_, _| problem(409, "x")).await;
    let client = client(&[&server.url]);
    client.start_workflow(&WorkflowStart::default()).await.unwrap_err();
    client.create_queue(&QueueSpec::default()).await.unwrap_err();
    let own = WorkflowStart { idempotency_key: Some("mine".to_owned()), ..WorkflowStart::default() };
    client.start_workflow(&own).await.unwrap_err();
    let keys: Vec<bool> = server.requests().iter().map(|request| request.header("idempotency-key").is_some()).collect();
    assert_eq!(keys, [true, true, false], "the last one is in the body");
}

// FEATURES: A14
#[tokio::test]
async fn an_idempotent_change_is_repeated_under_its_id() {
    for failure in FAILURES {
        let server =
            TestServer::start(move |number, _| if number == 0 { failure() } else { json("200 OK", JOB) }).await;
        client(&[&server.url]).cancel(JobId(1)).await.unwrap();
        let requests = server.requests();
        let id = requests[0].header("outlast-request-id").unwrap();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_eq!(requests[1].header("outlast-request-id"), Some(id));
    }
}

// FEATURES: A14
#[tokio::test]
async fn an_unsafe_change_is_repeated_by_the_same_generation() {
    let posts = AtomicUsize::new(0);
    let server = TestServer::start(move |_, request| match request.line.starts_with("POST") {
        true if posts.fetch_add(1, Ordering::SeqCst) == 0 => Reaction::Break,
        _ => of_generation(1, "200 OK", JOB),
    })
    .await;
    client(&[&server.url]).retry(JobId(1)).await.unwrap();
    let posts = changes(&server);
    assert_eq!(posts.len(), 2);
    assert!(posts.iter().all(|post| post.header("outlast-if-generation") == Some("node_1.1")), "{posts:?}");
    assert_eq!(posts[0].header("outlast-request-id"), posts[1].header("outlast-request-id"));
}

// FEATURES: A14
#[tokio::test]
async fn an_unsafe_change_is_not_repeated_by_a_restarted_server() {
    let posts = AtomicUsize::new(0);
    let server = TestServer::start(move |_, request| match request.line.starts_with("POST") {
        true if posts.fetch_add(1, Ordering::SeqCst) == 0 => Reaction::Break,
        true => other_generation(2),
        false => of_generation(1, "200 OK", "{}"),
    })
    .await;
    let error = client(&[&server.url]).approve(JobId(1), &ApprovalRequest::default()).await.unwrap_err();
    let Error::OutcomeUnknown { check, .. } = &error else { panic!("{error}") };
    assert_eq!(check, "GET /v1/approvals/job_0000000000001");
    let text = error.to_string();
    assert!(text.contains("restarted") && text.contains(&server.url) && text.contains(check.as_str()), "{text}");
    assert_eq!(changes(&server).len(), 2);
}

// FEATURES: A14
#[tokio::test]
async fn an_unsafe_change_is_sent_once_to_a_server_that_keeps_no_answers() {
    let server = TestServer::start(|_, request| match request.line.starts_with("POST") {
        true => Reaction::Break,
        false => json("200 OK", "{}"),
    })
    .await;
    let client = client(&[&server.url]);
    let error = client.signal_workflow(WorkflowId(1), "go", &serde_json::Value::Null).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error}");
    assert_eq!(changes(&server).len(), 1);
}

#[tokio::test]
async fn an_unsafe_change_in_doubt_is_unknown_if_its_server_stays_away() {
    let server = TestServer::start(|_, request| match request.line.starts_with("POST") {
        true => Reaction::Break,
        false => of_generation(1, "200 OK", "{}"),
    })
    .await;
    let error = impatient(&server.url).retry(JobId(1)).await.unwrap_err();
    assert!(matches!(&error, Error::OutcomeUnknown { why, .. } if why.contains("no answer within")), "{error}");
    assert!(changes(&server).len() >= 2);
}

// FEATURES: A14
#[tokio::test]
async fn a_restart_between_two_requests_is_noticed_and_harmless() {
    let server = TestServer::start(|_, request| {
        let generation = request.header("outlast-if-generation").map(str::to_owned);
        match generation.as_deref() {
            None => of_generation(1, "200 OK", JOB),
            Some("node_1.2") => of_generation(2, "200 OK", JOB),
            Some(_) => other_generation(2),
        }
    })
    .await;
    let client = client(&[&server.url]);
    client.job(JobId(1)).await.unwrap();
    client.retry(JobId(1)).await.unwrap();
    assert_eq!(changes(&server).len(), 2);
    client.retry(JobId(1)).await.unwrap();
    assert_eq!(changes(&server).len(), 3, "the new generation is known");
    assert_eq!(server.requests().len(), 4, "no other request was needed");
}

// FEATURES: A14
#[tokio::test]
async fn the_server_that_answered_last_is_used_and_others_only_while_it_is_unavailable() {
    let starting = TestServer::start(|_, _| problem(503, "not_ready")).await;
    let working = TestServer::start(|_, _| json("200 OK", JOB)).await;
    let dead = format!("http://{}", free_address().await);
    let client = client(&[&dead, &starting.url, &working.url]);
    for _ in 0..3 {
        client.job(JobId(1)).await.unwrap();
    }
    assert_eq!((starting.requests().len(), working.requests().len()), (1, 3));
    assert_eq!(client.address().to_string(), working.url);
}

// FEATURES: A14
#[tokio::test]
async fn other_refusals_are_final() {
    for (status, code) in
        [(409, "wrong_state"), (429, "too_many_jobs"), (503, "busy"), (503, "answer_lost"), (500, "internal")]
    {
        let refusing = TestServer::start(move |_, _| problem(status, code)).await;
        let other = TestServer::start(|_, _| json("200 OK", JOB)).await;
        let error = client(&[&refusing.url, &other.url]).cancel(JobId(1)).await.unwrap_err();
        assert_eq!((error.code(), refusing.requests().len(), other.requests().len()), (Some(code), 1, 0));
    }
}

// FEATURES: A14
#[tokio::test]
async fn a_repeated_deletion_of_something_missing_has_succeeded() {
    let missing = || problem(404, "unknown_job");
    let server = TestServer::start(move |number, _| if number == 0 { Reaction::Break } else { missing() }).await;
    let client = client(&[&server.url]);
    client.remove_job(JobId(1)).await.unwrap();
    let error = client.remove_job(JobId(1)).await.unwrap_err();
    assert_eq!(error.code(), Some("unknown_job"), "nothing was in doubt");
}

// FEATURES: A14
#[tokio::test]
async fn a_batch_is_repeated_only_if_all_its_jobs_have_a_key() {
    let respond = |number: usize, _: &Request| if number == 0 { Reaction::Break } else { json("200 OK", BATCH) };
    let keyed = TestServer::start(respond).await;
    let lines = Bytes::from_static(b"{\"idempotency_key\":\"a\"}\n{\"idempotency_key\":\"b\"}\n");
    client(&[&keyed.url]).submit_ndjson(lines, &SubmitOptions::default()).await.unwrap();
    assert_eq!(keyed.requests().len(), 2);
    let unkeyed = TestServer::start(respond).await;
    let lines = Bytes::from_static(b"{\"idempotency_key\":\"a\"}\n{}\n");
    let error = client(&[&unkeyed.url]).submit_ndjson(lines, &SubmitOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }) && error.to_string().contains("idempotency_key"), "{error}");
    assert_eq!(unkeyed.requests().len(), 1);
}

#[tokio::test]
async fn probes_report_what_is() {
    let server = TestServer::start(|_, _| problem(503, "not_ready")).await;
    let error = client(&[&server.url]).ready().await.unwrap_err();
    assert_eq!((error.code(), server.requests().len()), (Some("not_ready"), 1));
}

// FEATURES: A14
#[tokio::test]
async fn an_outage_is_given_up_with_all_addresses() {
    let (first, second) = (free_address().await, free_address().await);
    let error = impatient(&format!("{first},{second}")).job(JobId(1)).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&first) && text.contains(&second) && text.contains("refused"), "{text}");
}

// FEATURES: A14
#[tokio::test]
async fn a_client_waits_for_its_first_server_and_says_so() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    fn report(message: &str) {
        assert!(message.contains("trying again for up to"), "{message}");
        REPORTED.store(true, Ordering::SeqCst);
    }
    let address = free_address().await;
    let options = Options { on_outage: Some(report), ..Options::default() };
    let client = Client::with_options(&address, options).unwrap();
    let waiting = tokio::spawn(async move { client.job(JobId(1)).await });
    let since = Instant::now();
    while !REPORTED.load(Ordering::SeqCst) {
        assert!(since.elapsed() < DEADLINE, "the outage is not reported");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let server = TestServer::start_at(&address, 0, |_, _| json("200 OK", JOB)).await;
    assert_eq!(waiting.await.unwrap().unwrap().id, JobId(1));
    assert_eq!(server.requests().len(), 1);
}
