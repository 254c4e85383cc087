//! Blobs: whole and piecewise uploads, whole and partial downloads, lookup of missing blobs.
//!
//! Content is streamed in both directions.

use std::sync::Arc;

use ::api::{BlobList, BlobView, MissingView, UploadView};
use axum::Json as JsonBody;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use blobs::{ContentStream, Progress};
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, Limited};
use model::blob::BlobId;

use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::range::{self, Piece};
use super::{App, Core, body};

/// Limit of the body: ten thousand ids with quotes and white space.
const MISSING_BODY_BYTES_MAX: usize = 2 << 20;

fn parse_id(text: &str) -> Result<BlobId, Refused> {
    text.parse()
        .map_err(|error: model::blob::BadName| Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("id"))
}

pub(crate) async fn create(
    Shared(app): Shared<Arc<App>>,
    headers: HeaderMap,
    _: Parameters,
    content: Body,
) -> Result<Response, Refused> {
    let core = app.core()?;
    body::expect_octets(&headers)?;
    let (id, bytes) = core.blobs.put_stream(content.into_data_stream()).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location(id))], JsonBody(BlobView { id, bytes })).into_response())
}

pub(crate) async fn missing(
    Shared(app): Shared<Arc<App>>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<MissingView>, Refused> {
    let core = app.core()?;
    body::expect_json(&headers)?;
    let bytes = body::read(request_body, MISSING_BODY_BYTES_MAX).await?;
    let asked: BlobList = body::parse(&bytes)?;
    Ok(JsonBody(MissingView { missing: core.blobs.missing(&asked.blobs).await? }))
}

/// Receives a whole blob, or a piece.
pub(crate) async fn upload(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    content: Body,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    body::expect_octets(&headers)?;
    let piece = announced(&headers, content.size_hint().exact())?;
    if is_restart(&core, id, &piece) {
        core.blobs.cancel_upload(id).await?;
    }
    let begun = core.blobs.begin_upload(id, piece.total).await?;
    if begun.done {
        drain(content, piece.at.end - piece.at.start).await;
        return Ok(progressed(StatusCode::OK, id, begun));
    }
    let length = usize::try_from(piece.at.end - piece.at.start).unwrap_or(usize::MAX);
    // A body larger than announced is refused while it is received.
    let pieces = Limited::new(content, length).into_data_stream().map_err(Broken);
    let progress = core.blobs.append(id, piece.at.start, pieces).await?;
    let status = if progress.done { StatusCode::CREATED } else { StatusCode::OK };
    Ok(progressed(status, id, progress))
}

/// Whether the request restarts the upload: a whole blob always does. So does a first piece after all bytes have arrived
/// without making a blob; there is no other way to retry.
fn is_restart(core: &Core, id: BlobId, piece: &Piece) -> bool {
    let has_all = || core.blobs.upload_progress(id).is_some_and(|progress| progress.received == progress.total);
    piece.at.start == 0 && (piece.at.end == piece.total || has_all())
}

/// A body that ended early.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(Box<dyn std::error::Error + Send + Sync>);

/// The announced piece; without `Content-Range`, the whole blob. `length` is that of the body, if known.
fn announced(headers: &HeaderMap, length: Option<u64>) -> Result<Piece, Refused> {
    let Some(range) = headers.get(header::CONTENT_RANGE) else {
        let total = length.ok_or_else(|| {
            let detail = "send the size of the blob in `Content-Length`, or use `POST /v1/blobs`";
            Refused::detailed(ProblemKind::LengthRequired, detail)
        })?;
        return Ok(Piece { at: 0..total, total });
    };
    let wrong = |detail: String| Refused::detailed(ProblemKind::BadRange, detail).at("Content-Range");
    let piece = range.to_str().ok().and_then(Piece::parse).ok_or_else(|| {
        wrong(
            "the format is `bytes 0-1048575/20000000`: first and last byte of the piece, and the size of the blob"
                .to_owned(),
        )
    })?;
    let announced = piece.at.end - piece.at.start;
    match length {
        Some(length) if length != announced => {
            Err(wrong(format!("the range has {announced} bytes, but the body has {length}")))
        }
        _ => Ok(piece),
    }
}

/// Reads and drops a body: a client that still sends takes a closed connection for a failure.
async fn drain(content: Body, bytes_max: u64) {
    let mut pieces = Limited::new(content, usize::try_from(bytes_max).unwrap_or(usize::MAX)).into_data_stream();
    while let Some(Ok(_)) = pieces.next().await {}
}

fn location(id: BlobId) -> String {
    format!("/v1/blobs/{id}")
}

fn progressed(status: StatusCode, id: BlobId, progress: Progress) -> Response {
    let view = UploadView { id, received: progress.received, bytes: progress.total, done: progress.done };
    (status, JsonBody(view)).into_response()
}

/// Progress of an upload.
pub(crate) async fn progress(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    if let Some(progress) = core.blobs.upload_progress(id) {
        return Ok(progressed(StatusCode::OK, id, progress));
    }
    // A blob known to be damaged counts as missing.
    let there = core.blobs.missing(&[id]).await?.is_empty();
    match core.blobs.stat(id).await? {
        Some(stat) if there => {
            let progress = Progress { received: stat.bytes, total: stat.bytes, done: true };
            Ok(progressed(StatusCode::OK, id, progress))
        }
        _ => Err(blobs::Error::UploadNotFound { id }.into()),
    }
}

/// Existence and size of a blob.
pub(crate) async fn head(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let stat = core.blobs.stat(id).await?.ok_or(blobs::Error::NotFound { id })?;
    Ok(answer(StatusCode::OK, id, stat.bytes, Body::empty()))
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    match headers.get(header::RANGE) {
        Some(asked) => part(&core, id, asked).await,
        None => {
            let reading = core.blobs.read(id).await?;
            let bytes = reading.bytes();
            Ok(answer(StatusCode::OK, id, bytes, streamed(id, reading).await?))
        }
    }
}

async fn part(core: &Core, id: BlobId, asked: &HeaderValue) -> Result<Response, Refused> {
    let bytes = core.blobs.stat(id).await?.ok_or(blobs::Error::NotFound { id })?.bytes;
    let Some(range) = asked.to_str().ok().and_then(|asked| range::requested(asked, bytes)) else {
        let detail = format!("the blob has {bytes} bytes; request one range, like `bytes=0-1023`");
        let refused = Refused::detailed(ProblemKind::BadRange, detail).at("Range");
        return Ok(with_range(refused.into_response(), format!("bytes */{bytes}")));
    };
    let shown = format!("bytes {}-{}/{bytes}", range.start, range.end - 1);
    let reading = core.blobs.read_range(id, range).await?;
    let length = reading.bytes();
    Ok(with_range(answer(StatusCode::PARTIAL_CONTENT, id, length, streamed(id, reading).await?), shown))
}

fn with_range(mut response: Response, range: String) -> Response {
    if let Ok(range) = HeaderValue::from_str(&range) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

/// Waits for the first piece, so that damage found by then gives a problem document. Later damage aborts the body, which
/// the client notices by its length.
async fn streamed(id: BlobId, mut reading: ContentStream) -> Result<Body, Refused> {
    let first: Bytes = reading.try_next().await?.unwrap_or_default();
    let rest = reading.inspect_err(move |error| tracing::error!(%id, %error, "reading a blob failed"));
    Ok(Body::from_stream(stream::iter([Ok(first)]).chain(rest)))
}

fn answer(status: StatusCode, id: BlobId, length: u64, content: Body) -> Response {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(body::OCTETS));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // The content of an id never changes.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    // Foreign content must not be shown as a page of this server.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", id.hex())) {
        headers.insert(header::ETAG, tag);
    }
    response
}
