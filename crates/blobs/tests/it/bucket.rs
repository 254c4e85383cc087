//! S3 stub: the few calls that the store uses.
//!
//! Signatures must be present but are not verified, and nothing is durable. It does not cover the behaviour of a real
//! service under load, nor the validity of signatures.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::sync::Mutex;

pub const NAME: &str = "bucket";
const MODIFIED: &str = "Mon, 01 Jan 2024 00:00:00 GMT";
const MODIFIED_IN_LISTS: &str = "2024-01-01T00:00:00.000Z";

#[derive(Default)]
pub struct Bucket {
    pub objects: Mutex<BTreeMap<String, Bytes>>,
    pub uploads: Mutex<BTreeMap<String, BTreeMap<u32, Bytes>>>,
    /// Number of next requests that fail with 503.
    pub failures: AtomicUsize,
    /// Nonzero: parts of multipart uploads are refused.
    pub refuses_parts: AtomicUsize,
}

/// Serves an empty bucket until the runtime ends. Returns its endpoint.
pub async fn serve() -> (Arc<Bucket>, String) {
    let bucket = Arc::new(Bucket::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let limit = axum::extract::DefaultBodyLimit::disable();
    let router = Router::new().fallback(handle).layer(limit).with_state(Arc::clone(&bucket));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (bucket, endpoint)
}

type Params = Query<BTreeMap<String, String>>;

async fn handle(
    State(bucket): State<Arc<Bucket>>,
    method: Method,
    uri: Uri,
    Query(params): Params,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let signed = headers.get("authorization").is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256"));
    if !signed {
        return (StatusCode::FORBIDDEN, "<Error><Code>AccessDenied</Code></Error>").into_response();
    }
    if bucket.failures.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let path = uri.path().strip_prefix(&format!("/{NAME}")).unwrap_or_default().trim_start_matches('/').to_owned();
    match (method.as_str(), path.as_str()) {
        ("GET", "") => list(&bucket, &params).await,
        ("POST", "") if params.contains_key("delete") => delete_many(&bucket, &body).await,
        ("POST", _) => multipart(&bucket, path, &params).await,
        ("PUT", _) if params.contains_key("partNumber") => part(&bucket, &params, body).await,
        ("PUT", _) => {
            bucket.objects.lock().await.insert(path, body);
            [("etag", "\"1\"")].into_response()
        }
        ("GET" | "HEAD", _) => get(&bucket, &method, &path, &headers).await,
        ("DELETE", _) => {
            match params.get("uploadId") {
                Some(upload) => drop(bucket.uploads.lock().await.remove(upload)),
                None => drop(bucket.objects.lock().await.remove(&path)),
            }
            StatusCode::NO_CONTENT.into_response()
        }
        _ => StatusCode::NOT_IMPLEMENTED.into_response(),
    }
}

async fn get(bucket: &Bucket, method: &Method, path: &str, headers: &HeaderMap) -> Response {
    let Some(object) = bucket.objects.lock().await.get(path).cloned() else {
        return (StatusCode::NOT_FOUND, "<Error><Code>NoSuchKey</Code></Error>").into_response();
    };
    let described = [("last-modified", MODIFIED), ("etag", "\"1\"")];
    if *method == Method::HEAD {
        return (described, [("content-length", object.len().to_string())]).into_response();
    }
    let range = headers.get("range").and_then(|value| value.to_str().ok()).and_then(|value| {
        let (start, end) = value.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()?))
    });
    let Some((start, end)) = range else { return (described, object).into_response() };
    let end = (end + 1).min(object.len());
    let shown = format!("bytes {start}-{}/{}", end - 1, object.len());
    (StatusCode::PARTIAL_CONTENT, described, [("content-range", shown)], object.slice(start..end)).into_response()
}

async fn list(bucket: &Bucket, params: &BTreeMap<String, String>) -> Response {
    let prefix = params.get("prefix").map(String::as_str).unwrap_or_default();
    // Small pages, so that lists have several.
    let after = params.get("continuation-token").cloned().unwrap_or_default();
    let objects = bucket.objects.lock().await;
    let mut found = objects.iter().filter(|(key, _)| key.starts_with(prefix) && **key > after).peekable();
    let mut text = String::from("<ListBucketResult>");
    let mut last = "";
    for (key, object) in found.by_ref().take(3) {
        let size = object.len();
        write!(text, "<Contents><Key>{key}</Key><LastModified>{MODIFIED_IN_LISTS}</LastModified>").unwrap();
        write!(text, "<ETag>\"1\"</ETag><Size>{size}</Size></Contents>").unwrap();
        last = key;
    }
    if found.peek().is_some() {
        write!(text, "<NextContinuationToken>{last}</NextContinuationToken>").unwrap();
    }
    text.push_str("</ListBucketResult>");
    text.into_response()
}

async fn delete_many(bucket: &Bucket, body: &Bytes) -> Response {
    let body = String::from_utf8_lossy(body);
    let keys = body.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>")).map(|(key, _)| key);
    let mut text = String::from("<DeleteResult>");
    for key in keys {
        bucket.objects.lock().await.remove(key);
        write!(text, "<Deleted><Key>{key}</Key></Deleted>").unwrap();
    }
    text.push_str("</DeleteResult>");
    text.into_response()
}

async fn multipart(bucket: &Bucket, path: String, params: &BTreeMap<String, String>) -> Response {
    let mut uploads = bucket.uploads.lock().await;
    match params.get("uploadId") {
        None => {
            let upload = format!("upload-{}", uploads.len());
            let text =
                format!("<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>");
            uploads.insert(upload, BTreeMap::new());
            text.into_response()
        }
        Some(upload) => {
            let parts = uploads.remove(upload).unwrap_or_default();
            let whole: Vec<u8> = parts.into_values().flatten().collect();
            bucket.objects.lock().await.insert(path, whole.into());
            "<CompleteMultipartUploadResult><ETag>\"1\"</ETag></CompleteMultipartUploadResult>".into_response()
        }
    }
}

async fn part(bucket: &Bucket, params: &BTreeMap<String, String>, body: Bytes) -> Response {
    if bucket.refuses_parts.load(Ordering::SeqCst) > 0 {
        return (StatusCode::BAD_REQUEST, "<Error><Code>EntityTooLarge</Code></Error>").into_response();
    }
    let number = params["partNumber"].parse().unwrap();
    match bucket.uploads.lock().await.get_mut(&params["uploadId"]) {
        Some(parts) => {
            parts.insert(number, body);
            [("etag", format!("\"{number}\""))].into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
