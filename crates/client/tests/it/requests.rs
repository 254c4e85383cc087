//! Single requests and their responses.

use std::time::Duration;

use api::{BatchItem, QueueSpec};
use bytes::Bytes;
use client::jobs::{Filter, JobList, SubmitOptions};
use client::{Client, Error, Options};
use model::id::{JobId, QueueId};
use model::json::Json;
use model::queue::QueueRef;
use model::spec::{EchoRun, JobSpec, Run};
use model::state::State;
use tokio::net::TcpListener;

use crate::test_server::{Reaction, TestServer, json};

const ACCEPTED: &str =
    r#"{"id":"job_0000000000001","seq":1,"state":"pending","created_at":"2026-01-01T00:00:00Z","extra":1}"#;
const JOB: &str = r#"{"id":"job_0000000000001","seq":1,"state":"succeeded","reason":null,"message":null,
    "queue":"q_0000000000002","attempt":1,"retries":0,"created_at":"2026-01-01T00:00:00Z",
    "states":[{"state":"succeeded","at":"2026-01-01T00:00:01Z"}],"runner":null,"exit_code":0,"signal":null,
    "cpu_seconds":0.5,"memory_peak_bytes":1,"result":{"x": [1]},"eligible_at":null,"topic":"default","tenant":"default",
    "priority":"interactive","run":{"echo":{"value":{"x": [1]},"delay_ms":0}},"timeout_ms":null,"deadline":null,
    "not_before":null,"max_retries":3,"labels":{},"sandbox":null,"idempotency_key":null}"#;
const QUEUE: &str = r#"{"id":"q_0000000000002","token":"qt_0","tag":"t","tenant":"default","state":"active",
    "max_retries":3,"max_running":null,"created_at":"2026-01-01T00:00:00Z","implicit":false,
    "counters":{"active":0,"succeeded":0,"failed":0,"timed_out":0,"cancelled":0,"denied":0,"quarantined":0,"abandoned":0}}"#;

fn echo() -> JobSpec {
    JobSpec::new(Run::Echo(EchoRun { value: Json::parse(b"\"hi\"").unwrap(), ..EchoRun::default() }))
}

async fn always(status: &'static str, body: &'static str) -> TestServer {
    TestServer::start(move |_, _| json(status, body)).await
}

#[tokio::test]
async fn a_submit_is_json_with_token_and_key_over_one_reused_connection() {
    let server = always("201 Created", ACCEPTED).await;
    let options = Options { token: Some("secret".to_owned()), ..Options::default() };
    let client = Client::with_options(&server.url, options).unwrap();
    let accepted = client.submit(&echo()).await.unwrap();
    assert_eq!(accepted.id, JobId(1));
    let submit = SubmitOptions { idempotency_key: Some("k1".to_owned()), queue: Some(QueueRef::Id(QueueId(2))) };
    client.submit_raw(Bytes::from_static(b"{}"), &submit).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].line, "POST /v1/jobs");
    assert!(requests[0].body.contains(r#""echo":{"value":"hi""#), "{}", requests[0].body);
    assert!(requests[0].head.contains("content-type: application/json\r\n"));
    assert!(requests[0].head.contains("authorization: bearer secret\r\n"));
    assert_eq!(requests[1].line, "POST /v1/queues/q_0000000000002/jobs");
    assert!(requests[1].head.contains("idempotency-key: k1\r\n"));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_job_is_fetched_and_awaited() {
    let server = always("200 OK", JOB).await;
    let client = Client::new(&server.url).unwrap();
    let job = client.wait(JobId(1), Duration::from_secs(2)).await.unwrap();
    assert_eq!((job.state, job.exit_code), (State::Succeeded, Some(0)));
    assert_eq!(job.result.unwrap().as_str(), r#"{"x": [1]}"#);
    client
        .submit_and_wait(Bytes::from_static(b"{}"), &SubmitOptions::default(), Duration::from_millis(1500))
        .await
        .unwrap();
    client.job(JobId(1)).await.unwrap();
    client.cancel(JobId(1)).await.unwrap();
    client.retry(JobId(1)).await.unwrap();
    client.retract(JobId(1)).await.unwrap();
    let lines: Vec<_> = server.requests().into_iter().map(|request| request.line).collect();
    let job = "/v1/jobs/job_0000000000001";
    assert_eq!(
        lines,
        [
            format!("GET {job}?wait_ms=2000"),
            "POST /v1/jobs?wait_ms=1500".to_owned(),
            format!("GET {job}"),
            format!("POST {job}/cancel"),
            format!("POST {job}/retry"),
            format!("POST {job}/retract"),
        ]
    );
}

#[tokio::test]
async fn lists_carry_their_filters() {
    let server = always("200 OK", r#"{"items":[],"next_cursor":"c"}"#).await;
    let client = Client::new(&server.url).unwrap();
    let queue = QueueRef::Id(QueueId(2));
    let filter = Filter {
        state: Some(State::TimedOut),
        queue: Some(queue),
        topic: Some("a b".to_owned()),
        limit: Some(5),
        ..Filter::default()
    };
    let page = client.jobs(JobList::All, &filter).await.unwrap();
    assert_eq!(page.next_cursor.as_deref(), Some("c"));
    client.jobs(JobList::Running, &Filter::default()).await.unwrap();
    client.queue_jobs(queue, JobList::All, &Filter::default()).await.unwrap();
    client.queue_jobs(queue, JobList::Completed, &Filter::default()).await.unwrap();
    client.queues(None, Some("x")).await.unwrap();
    let lines: Vec<_> = server.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(
        lines,
        [
            "GET /v1/jobs?state=timed_out&topic=a%20b&limit=5&queue=q_0000000000002",
            "GET /v1/jobs/running",
            "GET /v1/queues/q_0000000000002/jobs",
            "GET /v1/queues/q_0000000000002/completed",
            "GET /v1/queues?cursor=x",
        ]
    );
}

#[tokio::test]
async fn queues_are_created_and_closed() {
    let server = TestServer::start(|_, request| match request.line.starts_with("DELETE") {
        true => Reaction::Send("HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
        false => json("201 Created", QUEUE),
    })
    .await;
    let client = Client::new(&server.url).unwrap();
    let queue = client.create_queue(&QueueSpec { tag: "t".to_owned(), ..QueueSpec::default() }).await.unwrap();
    let reference = QueueRef::Id(queue.id);
    client.drain_queue(reference).await.unwrap();
    client.cancel_queue(reference).await.unwrap();
    client.queue(reference).await.unwrap();
    client.remove_queue(reference).await.unwrap();
    assert_eq!(server.requests()[0].body, r#"{"tag":"t"}"#);
    assert_eq!(server.requests()[4].line, "DELETE /v1/queues/q_0000000000002");
}

#[tokio::test]
async fn a_batch_distinguishes_accepted_from_refused_jobs() {
    let body = r#"{"results":[{"id":"job_0000000000001","seq":1,"state":"pending","created_at":"2026-01-01T00:00:00Z"},
        {"error":{"type":"about:blank","title":"x","status":422,"detail":"no","code":"invalid","field":"run"}}]}"#;
    let server = always("200 OK", body).await;
    let client = Client::new(&server.url).unwrap();
    let batch = client.submit_ndjson(Bytes::from_static(b"{}\n{}\n"), &SubmitOptions::default()).await.unwrap();
    assert!(matches!(&batch.results[..], [BatchItem::Accepted(_), BatchItem::Refused { .. }]));
    assert!(server.requests()[0].head.contains("content-type: application/x-ndjson\r\n"));
    client.submit_batch(&[echo(), echo()]).await.unwrap();
    assert!(server.requests()[1].body.starts_with(r#"{"jobs":[{"#));
}

#[tokio::test]
async fn refusals_have_codes_and_invalid_responses_are_errors() {
    let problem = r#"{"type":"about:blank","title":"t","status":404,"detail":"no job","code":"job_not_found"}"#;
    let server = always("404 Not Found", problem).await;
    let error = Client::new(&server.url).unwrap().job(JobId(1)).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(404), Some("job_not_found")));
    assert_eq!(error.to_string(), "no job (job_not_found)");

    let server = always("502 Bad Gateway", "<html>").await;
    let error = Client::new(&server.url).unwrap().job(JobId(1)).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(502), Some("bad_gateway")));

    let server = always("200 OK", "[]").await;
    let error = Client::new(&server.url).unwrap().job(JobId(1)).await.unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
}

#[tokio::test]
async fn failed_connections_are_reported() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let client = Client::new(&format!("http://127.0.0.1:{port}")).unwrap();
    let error = client.ready().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
}

#[tokio::test]
async fn an_unresponsive_server_times_out() {
    let server = TestServer::start(|_, _| Reaction::Hang).await;
    let options = Options { timeout: Duration::from_millis(50), ..Options::default() };
    let error = Client::with_options(&server.url, options).unwrap().ready().await.unwrap_err();
    assert!(error.to_string().contains("no response within 50 ms"), "{error}");
}

#[tokio::test]
async fn health_reads_the_version_from_body_or_header() {
    let server = always("200 OK", r#"{"version":"1.2.3"}"#).await;
    let health = Client::new(&server.url).unwrap().health().await.unwrap();
    assert_eq!(health.version.as_deref(), Some("1.2.3"));
    let answer = "HTTP/1.1 200 OK\r\nServer: outlast/4.5.6\r\nContent-Length: 2\r\n\r\nok";
    let server = TestServer::start(move |_, _| Reaction::Send(answer.to_owned())).await;
    let health = Client::new(&server.url).unwrap().health().await.unwrap();
    assert_eq!(health.version.as_deref(), Some("4.5.6"));
}
