//! Blobs over HTTP: uploads, resumed uploads, byte ranges, missing and damaged blobs.

use std::fs;
use std::path::PathBuf;

use model::blob::BlobId;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::http::{Reply, Request};
use crate::support::{Api, Server, process, text, with};

const OCTETS: &str = "application/octet-stream";

/// Incompressible bytes, deterministic for a size.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = bytes as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn octets(request: Request, content: &[u8]) -> Request {
    request.header("content-type", OCTETS).body(content)
}

async fn post(api: &Api, content: &[u8]) -> Reply {
    api.send(octets(Request::post("/v1/blobs"), content)).await
}

async fn put(api: &Api, id: BlobId, content: &[u8]) -> Reply {
    api.send(octets(Request::new("PUT", format!("/v1/blobs/{id}")), content)).await
}

async fn put_piece(api: &Api, content: &[u8], from: usize, to: usize) -> Reply {
    let range = format!("bytes {from}-{}/{}", to - 1, content.len());
    let request = Request::new("PUT", format!("/v1/blobs/{}", BlobId::of(content))).header("content-range", &range);
    api.send(octets(request, &content[from..to])).await
}

async fn get_range(api: &Api, id: BlobId, range: &str) -> Reply {
    api.send(Request::get(format!("/v1/blobs/{id}")).header("range", range)).await
}

// FEATURES: C11
#[tokio::test]
async fn blobs_of_any_size_are_returned_unchanged() {
    let server = Server::start().await;
    for size in [0, 1, 64 << 10, 20_000_000] {
        let content = noise(size);
        let id = BlobId::of(&content);
        let created = post(&server, &content).await.expect(201);
        assert_eq!(created, json!({"id": id, "bytes": size}));
        let reply = server.get(&format!("/v1/blobs/{id}")).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-length"), Some(size.to_string().as_str()));
        assert_eq!(reply.header("content-type"), Some(OCTETS));
        assert!(reply.body == content, "a blob of {size} bytes was returned changed");
        let head = server.send(Request::new("HEAD", format!("/v1/blobs/{id}"))).await;
        assert_eq!((head.status, head.header("content-length")), (200, Some(size.to_string().as_str())));
        assert!(head.body.is_empty());
        // A repeated upload succeeds.
        assert_eq!(put(&server, id, &content).await.expect(200)["done"], true);
    }
}

// FEATURES: C11
#[tokio::test]
async fn missing_blobs_are_listed_by_one_request() {
    let server = Server::start().await;
    let known = text(&post(&server, b"known").await.expect(201)["id"]);
    let absent = BlobId::of(b"absent").to_string();
    let requested = json!({"blobs": [absent, known, absent]});
    let answer = server.post("/v1/blobs/missing", &requested).await.expect(200);
    assert_eq!(answer, json!({"missing": [absent, absent]}));
    server.post("/v1/blobs/missing", &json!({"blobs": ["blob:1"]})).await.refused(400, "invalid_json");
    server.post("/v1/blobs/missing", &json!({"blob": []})).await.refused(400, "unknown_field");
    let many: Vec<String> = vec![absent; 10_001];
    server.post("/v1/blobs/missing", &json!({"blobs": many})).await.refused(413, "too_many");
}

// FEATURES: C11
#[tokio::test]
async fn an_upload_in_pieces_resumes_after_a_restart() {
    let mut server = Server::start().await;
    let content = noise(1_000_000);
    let id = BlobId::of(&content);
    server.get(&format!("/v1/blobs/{id}/upload")).await.refused(404, "upload_not_found");
    let answer = put_piece(&server, &content, 0, 400_000).await.expect(200);
    assert_eq!(answer, json!({"id": id, "received": 400_000, "bytes": 1_000_000, "done": false}));
    for wrong in [0, 100, 400_001] {
        let problem = put_piece(&server, &content, wrong, 500_000).await.refused(409, "wrong_offset");
        assert_eq!(problem["offset"], 400_000);
    }
    server.get(&format!("/v1/blobs/{id}")).await.refused(404, "blob_not_found");
    assert_eq!(server.send(Request::new("HEAD", format!("/v1/blobs/{id}"))).await.status, 404);
    server.restart().await;
    let progress = server.get(&format!("/v1/blobs/{id}/upload")).await.expect(200);
    assert_eq!((&progress["received"], &progress["done"]), (&json!(400_000), &json!(false)));
    assert_eq!(put_piece(&server, &content, 400_000, 1_000_000).await.expect(201)["done"], true);
    assert!(server.get(&format!("/v1/blobs/{id}")).await.body == content);
    assert_eq!(server.get(&format!("/v1/blobs/{id}/upload")).await.expect(200)["done"], true);
    // A client that missed the last response may send the last piece again.
    assert_eq!(put_piece(&server, &content, 400_000, 1_000_000).await.expect(200)["done"], true);
}

// FEATURES: C11
#[tokio::test]
async fn a_dropped_connection_loses_only_bytes_in_transit() {
    let server = Server::start().await;
    let content = noise(4_000_000);
    let id = BlobId::of(&content);
    let head = format!(
        "PUT /v1/blobs/{id} HTTP/1.1\r\nhost: {}\r\ncontent-type: {OCTETS}\r\ncontent-length: {}\r\n\r\n",
        server.address,
        content.len()
    );
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.write_all(&content[..2_500_000]).await.unwrap();
    let path = format!("/v1/blobs/{id}/upload");
    // Progress of an upload that is still being received is not reported.
    loop {
        let upload = server.get(&path).await;
        if upload.status == 200 {
            break;
        }
        upload.refused(404, "upload_not_found");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    drop(connection);
    let progress = server.seen(&path, |progress| progress["received"] != 0).await;
    let received = usize::try_from(progress["received"].as_u64().unwrap()).unwrap();
    assert!((1_000_000..=2_500_000).contains(&received), "{progress}");
    put_piece(&server, &content, received, content.len()).await.expect(201);
    assert!(server.get(&format!("/v1/blobs/{id}")).await.body == content);
}

#[tokio::test]
async fn content_that_does_not_match_its_id_is_not_stored() {
    let server = Server::start().await;
    let id = BlobId::of(b"this");
    put(&server, id, b"that").await.refused(422, "blob_mismatch");
    server.get(&format!("/v1/blobs/{id}")).await.refused(404, "blob_not_found");
    server.get(&format!("/v1/blobs/{}", BlobId::of(b"that"))).await.refused(404, "blob_not_found");
    assert_eq!(put(&server, id, b"this").await.expect(201)["done"], true);
}

#[tokio::test]
async fn byte_ranges_are_returned() {
    let server = Server::start().await;
    let content = noise(600_000);
    let id = BlobId::of(&content);
    put(&server, id, &content).await.expect(201);
    for (requested, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=299999-300001", 299_999, 300_002),
        ("bytes=599990-999999", 599_990, 600_000),
        ("bytes=599000-", 599_000, 600_000),
        ("bytes=-5", 599_995, 600_000),
    ] {
        let reply = get_range(&server, id, requested).await;
        assert_eq!(reply.status, 206, "{requested}");
        let range = format!("bytes {from}-{}/600000", to - 1);
        assert_eq!(reply.header("content-range"), Some(range.as_str()));
        assert!(reply.body == content[from..to], "{requested}");
    }
    for requested in ["bytes=600000-", "bytes=5-2", "bytes=0-1,5-6", "items=0-1", "bytes=x-y", "bytes=-0"] {
        let reply = get_range(&server, id, requested).await;
        reply.refused(416, "bad_range");
        assert_eq!(reply.header("content-range"), Some("bytes */600000"), "{requested}");
    }
    get_range(&server, BlobId::of(b"none"), "bytes=0-1").await.refused(404, "blob_not_found");
}

#[tokio::test]
async fn invalid_blob_requests_are_refused() {
    let server = Server::start().await;
    for path in ["/v1/blobs/x", "/v1/blobs/blob:12", "/v1/blobs/w_00000000000000000000000000000000"] {
        server.get(path).await.refused(400, "invalid_id");
        server.get(&format!("{path}/upload")).await.refused(400, "invalid_id");
        server.send(octets(Request::new("PUT", path), b"x")).await.refused(400, "invalid_id");
    }
    let id = BlobId::of(b"hello");
    let path = format!("/v1/blobs/{id}");
    for kind in ["application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"] {
        for request in [Request::post("/v1/blobs"), Request::new("PUT", path.clone())] {
            let problem = server.send(request.header("content-type", kind).body("hello")).await;
            let problem = problem.refused(415, "unsupported_media_type");
            assert!(text(&problem["detail"]).contains(OCTETS), "{problem}");
        }
    }
    server.send(Request::post("/v1/blobs").body("hello")).await.refused(415, "unsupported_media_type");
    let foreign = octets(Request::post("/v1/blobs"), b"hello").header("origin", "http://evil.example");
    server.send(foreign).await.refused(403, "foreign_origin");
    for range in ["bytes 0-4", "bytes 0-9/5", "bytes 4-0/5", "bytes */5", "0-4/5", "bytes 0-3/5"] {
        let request = octets(Request::new("PUT", path.clone()), b"hello").header("content-range", range);
        server.send(request).await.refused(416, "bad_range");
    }
    let chunked =
        Request::new("PUT", path.clone()).header("content-type", OCTETS).header("transfer-encoding", "chunked");
    server.send(chunked).await.refused(411, "length_required");
    let huge = Request::new("PUT", path.clone()).header("content-range", &format!("bytes 0-4/{}", 65_u64 << 30));
    server.send(octets(huge, b"hello")).await.refused(413, "too_large");
    server.get(&format!("{path}?depth=1")).await.refused(400, "invalid_parameter");
    server.get(&path).await.refused(404, "blob_not_found");
}

fn job_with(input: &str) -> Value {
    with(process(&["cat", "inputs/in"]), json!({"inputs": {"in": input}, "max_retries": 0}))
}

// FEATURES: C11
#[tokio::test]
async fn a_job_reads_its_inputs_and_a_job_with_missing_blobs_is_refused() {
    let server = Server::start().await;
    let known = text(&post(&server, b"from a blob").await.expect(201)["id"]);
    let absent = BlobId::of(b"absent").to_string();
    let problem = server.post("/v1/jobs", &job_with(&absent)).await.refused(409, "blob_missing");
    assert_eq!(problem["blobs"], json!([absent]));
    let wasm = json!({"run": {"wasm": {"component": absent}}});
    server.post("/v1/jobs", &wasm).await.refused(409, "blob_missing");
    let job = server.run(&job_with(&known)).await;
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!("from a blob")));
    let batch = json!({"jobs": [job_with(&known), job_with(&absent), crate::support::echo(1), wasm, job_with(&known)]});
    let results = server.post("/v1/jobs", &batch).await.expect(200)["results"].clone();
    for index in [1, 3] {
        assert_eq!(results[index]["error"]["code"], "blob_missing", "{results}");
        assert_eq!(results[index]["error"]["blobs"], json!([absent]));
    }
    for index in [0, 2, 4] {
        assert_eq!(server.ended(&text(&results[index]["id"])).await["state"], "succeeded");
    }
    server.works_with(4).await;
}

/// All files in the blob directory, in any layout.
fn blob_files(server: &Server) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![server.directory().join("blobs")];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => pending.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

fn damage(server: &Server, id: BlobId) {
    let file = blob_files(server).into_iter().find(|path| path.to_string_lossy().contains(&id.hex()[4..])).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(&file).unwrap();
    fs::write(&file, bytes).unwrap();
}

// FEATURES: C11
#[tokio::test]
async fn a_blob_damaged_on_disk_is_reported_and_never_returned() {
    let server = Server::start().await;
    let (read, used) = (noise(100_000), noise(100_001));
    for content in [&read, &used] {
        post(&server, content).await.expect(201);
        damage(&server, BlobId::of(content));
    }
    let (read_id, used_id) = (BlobId::of(&read), BlobId::of(&used));
    let problem = server.get(&format!("/v1/blobs/{read_id}")).await.refused(500, "damaged");
    assert!(text(&problem["detail"]).contains("Upload it again"), "{problem}");
    get_range(&server, read_id, "bytes=0-9").await.refused(500, "damaged");
    let job = server.run(&job_with(&used_id.to_string())).await;
    assert_eq!((&job["state"], &job["reason"]), (&json!("failed"), &json!("fatal")), "{job}");
    assert!(text(&job["message"]).contains("is damaged"), "{job}");
    // The blob now counts as missing; a new upload repairs it.
    server.post("/v1/jobs", &job_with(&used_id.to_string())).await.refused(409, "blob_missing");
    put(&server, used_id, &used).await.expect(201);
    assert_eq!(server.run(&job_with(&used_id.to_string())).await["state"], "succeeded");
    post(&server, &read).await.expect(201);
    assert!(server.get(&format!("/v1/blobs/{read_id}")).await.body == read);
}
