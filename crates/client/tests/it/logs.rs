//! Job logs over connections that break.

use client::logs::{LogChunk, LogOptions, Stream};
use client::{Client, Error};
use model::id::JobId;

use crate::test_server::{Reaction, STREAM_HEAD, TestServer, chunk, json};

fn output(cursor: &str, text: &str) -> String {
    let data = format!(r#"{{"attempt":1,"at":"2026-01-01T00:00:00Z","text":"{text}"}}"#);
    chunk(&format!("id: {cursor}\nevent: stderr\ndata: {data}\n\n"))
}

fn end(cursor: &str) -> String {
    chunk(&format!("id: {cursor}\nevent: end\ndata: {{}}\n\n")) + "0\r\n\r\n"
}

fn text(chunk: Option<LogChunk>) -> String {
    String::from_utf8(chunk.unwrap().bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_broken_log_resumes_after_the_last_returned_chunk() {
    let server = TestServer::start(|number, _| match number {
        // Three ways to break: between events, a proper end without the last event, and within an event.
        0 => Reaction::SendAndBreak(format!("{STREAM_HEAD}{}{}", output("1.0.3", "one"), output("1.0.6", "two"))),
        1 => Reaction::Send(format!("{STREAM_HEAD}{}0\r\n\r\n", output("1.0.8", "three"))),
        2 => Reaction::SendAndBreak(format!("{STREAM_HEAD}{}", chunk("id: 1.0.9\nevent: stderr\nda"))),
        _ => Reaction::Send(format!("{STREAM_HEAD}{}{}", output("1.0.9", "four"), end("1.0.9"))),
    })
    .await;
    let client = Client::new(&server.url).unwrap();
    let request = LogOptions { stream: Some(Stream::Stderr), follow: true, tail: Some(3), attempt: None };
    let mut log = client.logs(JobId(1), request);
    assert_eq!(text(log.next().await.unwrap()), "one");
    assert_eq!(text(log.next().await.unwrap()), "two");
    assert!(matches!(log.next().await, Err(Error::Unreachable { .. })));
    assert_eq!(text(log.next().await.unwrap()), "three");
    assert!(matches!(log.next().await, Err(Error::Unreachable { .. })));
    assert!(matches!(log.next().await, Err(Error::Unreachable { .. })));
    assert_eq!(text(log.next().await.unwrap()), "four");
    assert_eq!(log.next().await.unwrap(), None);
    assert_eq!(log.next().await.unwrap(), None);

    let path = "GET /v1/jobs/job_0000000000001/logs?stream=stderr&follow=true";
    let requests = server.requests();
    let lines: Vec<_> = requests.iter().map(|request| request.line.as_str()).collect();
    assert_eq!(lines, [&format!("{path}&tail=3"), path, path, path]);
    let cursors: Vec<_> = requests.iter().map(|request| request.header("last-event-id")).collect();
    assert_eq!(cursors, [None, Some("1.0.6"), Some("1.0.8"), Some("1.0.8")]);
    assert!(requests.iter().all(|request| request.header("accept") == Some("text/event-stream")));
}

#[tokio::test]
async fn a_refusal_is_returned_unchanged() {
    let problem = r#"{"type":"about:blank","title":"Not found","status":404,"detail":"no job","code":"unknown_job"}"#;
    let server = TestServer::start(move |_, _| json("404 Not Found", problem)).await;
    let error = Client::new(&server.url).unwrap().logs(JobId(1), LogOptions::default()).next().await.unwrap_err();
    assert_eq!(error.code(), Some("unknown_job"));
}
