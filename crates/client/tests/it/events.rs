//! Subscriptions: what breaks is taken up again where it broke.

use client::events::{Interest, Since};
use client::{Client, Error, Options};
use model::id::JobId;

use crate::test_server::{Act, STREAM_HEAD, TestServer, chunk, json};

fn change(cursor: &str) -> String {
    let data = format!(
        r#"{{"cursor":"{cursor}","kind":"job","job":"job_0000000000001","queue":"q_0000000000002","state":"running","at":"2026-01-01T00:00:00Z"}}"#
    );
    chunk(&format!("id: {cursor}\nevent: job\ndata: {data}\n\n"))
}

#[tokio::test]
async fn a_broken_stream_goes_on_after_the_last_change_that_was_taken() {
    let server = TestServer::start(|number, _| match number {
        0 => Act::SendAndBreak(format!("{STREAM_HEAD}{}{}", change("c1"), change("c2"))),
        // Half an event: it must not count.
        1 => Act::SendAndBreak(format!("{STREAM_HEAD}{}", chunk(": hello\n\nid: c3\nevent: job\nda"))),
        _ => Act::Send(format!("{STREAM_HEAD}{}", change("c3"))),
    })
    .await;
    let client = Client::new(&server.url).unwrap();
    let interest = Interest { job: Some(JobId(1)), ..Interest::default() };
    let mut events = client.events(Since::Start, interest).await.unwrap();
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
async fn a_server_that_says_where_now_is_closes_the_gap_before_the_first_change() {
    let server = TestServer::start(|number, _| match number {
        0 => Act::SendAndBreak(format!("{STREAM_HEAD}{}", chunk("id: c7\n\n"))),
        _ => Act::Send(format!("{STREAM_HEAD}{}", change("c8"))),
    })
    .await;
    let client = Client::new(&server.url).unwrap();
    let mut events = client.events(Since::Now, Interest::default()).await.unwrap();
    assert_eq!(events.next().await.unwrap().cursor, "c8");
    assert_eq!(server.requests()[1].line, "GET /v1/events?since=c7");
}

#[tokio::test]
async fn an_expired_cursor_is_final() {
    let problem = r#"{"type":"about:blank","title":"Gone","status":410,"detail":"too old","code":"cursor_expired"}"#;
    let server = TestServer::start(move |_, _| json("410 Gone", problem)).await;
    let client = Client::new(&server.url).unwrap();
    let error = client.events(Since::Cursor("c0".to_owned()), Interest::default()).await.unwrap_err();
    assert_eq!(error.code(), Some("cursor_expired"));
}

#[tokio::test]
async fn a_server_that_stays_away_is_given_up_in_the_end() {
    let server = TestServer::start(|_, _| Act::SendAndBreak(STREAM_HEAD.to_owned())).await;
    let options = Options { reconnects: 1, ..Options::default() };
    let client = Client::with_options(&server.url, options).unwrap();
    let mut events = client.events(Since::Now, Interest::default()).await.unwrap();
    assert!(matches!(events.next().await, Err(Error::Unreachable { .. })));
    assert_eq!(server.requests().len(), 2);
}
