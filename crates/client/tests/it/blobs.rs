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
