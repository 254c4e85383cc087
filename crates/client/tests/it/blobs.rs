//! Uploads and downloads over connections that break.

use bytes::Bytes;
use client::Client;
use model::blob::BlobId;

use crate::test_server::{Reaction, TestServer, json};

const CHUNK: usize = 4 << 20;

fn client(url: &str) -> Client {
    Client::new(url).unwrap()
}

fn progress(id: BlobId, received: usize, bytes: usize) -> Reaction {
    let done = received == bytes;
    json("200 OK", &format!(r#"{{"id":"{id}","received":{received},"bytes":{bytes},"done":{done}}}"#))
}

fn problem(status: &str, number: u16, code: &str) -> Reaction {
    let body = format!(r#"{{"type":"x","title":"x","status":{number},"detail":"x","code":"{code}"}}"#);
    json(status, &body)
}

// FEATURES: C11
#[tokio::test]
async fn existing_blobs_are_not_uploaded() {
    let server = TestServer::start(|_, _| json("200 OK", r#"{"missing":[]}"#)).await;
    let content = client(&server.url).put_blob(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!((content.id, content.bytes), (BlobId::of(b"hello"), 5));
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].body.contains(&content.id.to_string()), "{requests:?}");
}

// FEATURES: C11
#[tokio::test]
async fn a_broken_upload_resumes_at_the_servers_offset() {
    let content = Bytes::from("x".repeat(CHUNK + 100));
    let (id, bytes) = (BlobId::of(&content), content.len());
    let server = TestServer::start(move |number, _| match number {
        0 => json("200 OK", &format!(r#"{{"missing":["{id}"]}}"#)),
        1 => problem("404 Not Found", 404, "upload_not_found"),
        // The connection breaks during the first chunk.
        2 => Reaction::SendAndBreak(String::new()),
        3 => problem("409 Conflict", 409, "busy"),
        4 | 5 => progress(id, 1_000, bytes),
        _ => progress(id, bytes, bytes),
    })
    .await;
    client(&server.url).put_blob(content).await.unwrap();
    let requests = server.requests();
    let ranges: Vec<&str> = requests.iter().filter_map(|request| request.header("content-range")).collect();
    let last = CHUNK - 1;
    assert_eq!(ranges[0], format!("bytes 0-{last}/{bytes}"), "{ranges:?}");
    assert!(ranges[1..].iter().all(|range| range.starts_with("bytes 1000-")), "{ranges:?}");
}

#[tokio::test]
async fn a_refused_upload_is_not_retried() {
    let id = BlobId::of(b"hello");
    let server = TestServer::start(move |number, _| match number {
        0 => json("200 OK", &format!(r#"{{"missing":["{id}"]}}"#)),
        _ => problem("507 Insufficient Storage", 507, "disk_full"),
    })
    .await;
    let error = client(&server.url).put_blob(Bytes::from_static(b"hello")).await.unwrap_err();
    assert_eq!(error.code(), Some("disk_full"));
    assert_eq!(server.requests().len(), 2);
}

// FEATURES: C11
#[tokio::test]
async fn a_damaged_download_is_an_error() {
    let answer = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let server = TestServer::start(move |number, _| Reaction::Send(answer(["hello", "hullo"][number]))).await;
    let client = client(&server.url);
    for right in [true, false] {
        let mut download = client.get_blob(BlobId::of(b"hello")).await.unwrap();
        assert_eq!(download.chunk().await.unwrap().unwrap().len(), 5);
        assert_eq!(download.chunk().await.is_ok(), right);
    }
}

fn partial(content: &str, start: usize) -> String {
    let (rest, bytes) = (&content[start..], content.len());
    let (length, last) = (rest.len(), bytes - 1);
    format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nContent-Range: bytes {start}-{last}/{bytes}\r\n\r\n{rest}"
    )
}

async fn read(client: &Client, id: BlobId) -> Result<String, client::Error> {
    let mut download = client.get_blob(id).await?;
    let mut content = Vec::new();
    while let Some(chunk) = download.chunk().await? {
        content.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(content).unwrap())
}

const LETTERS: &str = "abcdefghij";

/// The connection breaks after some bytes, twice; then the rest comes.
// FEATURES: C11
#[tokio::test]
async fn a_broken_download_resumes_where_it_was() {
    let server = TestServer::start(|number, _| match number {
        0 => Reaction::SendAndBreak("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_owned()),
        1 => Reaction::SendAndBreak(partial(LETTERS, 3).trim_end_matches("ghij").to_owned()),
        _ => Reaction::Send(partial(LETTERS, 6)),
    })
    .await;
    assert_eq!(read(&client(&server.url), BlobId::of(LETTERS.as_bytes())).await.unwrap(), LETTERS);
    let ranges: Vec<_> = server.requests().iter().map(|request| request.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges, [None, Some("bytes=3-".to_owned()), Some("bytes=6-".to_owned())]);
}

/// A proxy may ignore the range.
// FEATURES: C11
#[tokio::test]
async fn what_is_sent_again_from_the_beginning_is_skipped() {
    let whole = |content: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{content}");
    let server = TestServer::start(move |number, _| match number {
        0 => Reaction::SendAndBreak(whole("abcd")),
        _ => Reaction::Send(whole(LETTERS)),
    })
    .await;
    assert_eq!(read(&client(&server.url), BlobId::of(LETTERS.as_bytes())).await.unwrap(), LETTERS);
}

// FEATURES: C11
#[tokio::test]
async fn a_download_that_resumes_with_other_content_is_an_error() {
    let server = TestServer::start(|number, _| match number {
        0 => Reaction::SendAndBreak("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_owned()),
        _ => Reaction::Send(partial("xxxxxxxxxx", 3)),
    })
    .await;
    let error = read(&client(&server.url), BlobId::of(LETTERS.as_bytes())).await.unwrap_err();
    assert!(error.to_string().contains("damaged in transit"), "{error}");
}

// FEATURES: C11
#[tokio::test]
async fn a_download_gives_up_after_the_outage_that_is_allowed() {
    let server =
        TestServer::start(|_, _| Reaction::SendAndBreak("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n".to_owned()))
            .await;
    let options = client::Options { resend_for: std::time::Duration::from_millis(500), ..client::Options::default() };
    let client = Client::with_options(&server.url, options).unwrap();
    assert!(matches!(read(&client, BlobId::of(b"x")).await, Err(client::Error::Unreachable { .. })));
    assert!(server.requests().len() > 1);
}
