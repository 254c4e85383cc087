//! Event subscriptions over connections that break.

use std::time::Duration;

use client::events::{EventFilter, Since};
use client::{Client, Error, Options};
use model::id::JobId;

use crate::test_server::{Reaction, STREAM_HEAD, TestServer, chunk, json};

fn change(cursor: &str) -> String {
    let data = format!(
        r#"{{"cursor":"{cursor}","kind":"job","job":"job_0000000000001","queue":"q_0000000000002","state":"running","at":"2026-01-01T00:00:00Z"}}"#
    );
    chunk(&format!("id: {cursor}\nevent: job\ndata: {data}\n\n"))
}

#[tokio::test]
async fn a_broken_stream_resumes_after_the_last_returned_change() {
    let server = TestServer::start(|number, _| match number {
        0 => Reaction::SendAndBreak(format!("{STREAM_HEAD}{}{}", change("c1"), change("c2"))),
        // Half an event must be ignored.
        1 => Reaction::SendAndBreak(format!("{STREAM_HEAD}{}", chunk(": hello\n\nid: c3\nevent: job\nda"))),
        _ => Reaction::Send(format!("{STREAM_HEAD}{}", change("c3"))),
    })
    .await;
    let client = Client::new(&server.url).unwrap();
    let filter = EventFilter { job: Some(JobId(1)), ..EventFilter::default() };
    let mut events = client.events(Since::Start, filter).await.unwrap();
    for cursor in ["c1", "c2", "c3"] {
        assert_eq!(events.next().await.unwrap().cursor, cursor);
    }
    let lines: Vec<_> = server.requests().into_iter().map(|request| request.line).collect();
    let job = "job=job_0000000000001";
    assert_eq!(
        lines,
        [
            format!("GET /v1/events?since=start&{job}"),
            format!("GET /v1/events?since=c2&{job}"),
            format!("GET /v1/events?since=c2&{job}"),
        ]
    );
    assert_eq!(events.since(), &Since::Cursor("c3".to_owned()));
}

#[tokio::test]
async fn a_cursor_for_now_closes_the_gap_before_the_first_change() {
    let server = TestServer::start(|number, _| match number {
        0 => Reaction::SendAndBreak(format!("{STREAM_HEAD}{}", chunk("id: c7\n\n"))),
        _ => Reaction::Send(format!("{STREAM_HEAD}{}", change("c8"))),
    })
    .await;
    let client = Client::new(&server.url).unwrap();
    let mut events = client.events(Since::Now, EventFilter::default()).await.unwrap();
    assert_eq!(events.next().await.unwrap().cursor, "c8");
    assert_eq!(server.requests()[1].line, "GET /v1/events?since=c7");
}

#[tokio::test]
async fn an_expired_cursor_is_final() {
    let problem = r#"{"type":"about:blank","title":"Gone","status":410,"detail":"too old","code":"cursor_expired"}"#;
    let server = TestServer::start(move |_, _| json("410 Gone", problem)).await;
    let client = Client::new(&server.url).unwrap();
    let error = client.events(Since::Cursor("c0".to_owned()), EventFilter::default()).await.unwrap_err();
    assert_eq!(error.code(), Some("cursor_expired"));
}

#[tokio::test]
async fn a_stream_that_always_breaks_is_an_error_after_the_longest_outage() {
    let server = TestServer::start(|_, _| Reaction::SendAndBreak(STREAM_HEAD.to_owned())).await;
    let options = Options { resend_for: Duration::from_millis(150), ..Options::default() };
    let client = Client::with_options(&server.url, options).unwrap();
    let mut events = client.events(Since::Now, EventFilter::default()).await.unwrap();
    assert!(matches!(events.next().await, Err(Error::Unreachable { .. })));
    assert!(server.requests().len() >= 2);
}
