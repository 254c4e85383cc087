//! Blobs: uploads whole or in pieces, downloads whole or in parts, and what is missing.
//!
//! Content goes through piece by piece, in both directions; no request holds more than that in memory.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use blobs::{Progress, Reading};
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, Limited};
use model::blob::BlobId;
use model::view::{BlobList, BlobView, MissingView, UploadView};

use super::list::Parameters;
use super::path::Path;
use super::problem::{ContentFault, Fault, Refused};
use super::range::{self, Piece};
use super::{App, Core, body};

/// Ten thousand names with their quotes, and room for somebody's blanks.
const MISSING_BODY_BYTES_MAX: usize = 2 << 20;

fn parse_id(text: &str) -> Result<BlobId, Refused> {
    text.parse().map_err(|error: model::blob::BadName| Refused::saying(Fault::InvalidId, error.to_string()).at("id"))
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

/// Takes a whole blob, or a piece of it.
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
    if begins_anew(&core, id, &piece) {
        core.blobs.cancel_upload(id).await?;
    }
    let begun = core.blobs.begin_upload(id, piece.total).await?;
    if begun.done {
        swallow(content, piece.at.end - piece.at.start).await;
        return Ok(progressed(StatusCode::OK, id, begun));
    }
    let length = usize::try_from(piece.at.end - piece.at.start).unwrap_or(usize::MAX);
    // More than was announced is refused on the way, whatever the headers say.
    let pieces = Limited::new(content, length).into_data_stream().map_err(Broken);
    let progress = core.blobs.append(id, piece.at.start, pieces).await?;
    let status = if progress.done { StatusCode::CREATED } else { StatusCode::OK };
    Ok(progressed(status, id, progress))
}

/// Who sends everything does not go on with what somebody has begun. And who begins where all has arrived, but could not
/// be made a blob, has no other way to try again.
fn begins_anew(core: &Core, id: BlobId, piece: &Piece) -> bool {
    let has_all = || core.blobs.upload_progress(id).is_some_and(|progress| progress.received == progress.total);
    piece.at.start == 0 && (piece.at.end == piece.total || has_all())
}

/// A body that ended before its time.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(Box<dyn std::error::Error + Send + Sync>);

/// Which part of what a request brings: all of it, unless it says otherwise. `length` is that of the body, if known.
fn announced(headers: &HeaderMap, length: Option<u64>) -> Result<Piece, Refused> {
    let Some(range) = headers.get(header::CONTENT_RANGE) else {
        let total = length.ok_or_else(|| {
            let detail = "say with `Content-Length` how large the blob is, or send it to `POST /v1/blobs`";
            Refused::saying(ContentFault::LengthRequired.into(), detail)
        })?;
        return Ok(Piece { at: 0..total, total });
    };
    let wrong = |detail: String| Refused::saying(ContentFault::BadRange.into(), detail).at("Content-Range");
    let piece = range.to_str().ok().and_then(Piece::parse).ok_or_else(|| {
        wrong("write it like `bytes 0-1048575/20000000`: first and last byte of this piece, and of all".to_owned())
    })?;
    let announced = piece.at.end - piece.at.start;
    match length {
        Some(length) if length != announced => {
            Err(wrong(format!("it says {announced} bytes, but {length} are in the body")))
        }
        _ => Ok(piece),
    }
}

/// Reads what nobody needs: a client that still sends would take a closed connection for a failure.
async fn swallow(content: Body, bytes_max: u64) {
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

/// How far an upload is.
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
    // One that is known to be damaged has to be sent again.
    let there = core.blobs.missing(&[id]).await?.is_empty();
    match core.blobs.stat(id).await? {
        Some(stat) if there => {
            let progress = Progress { received: stat.bytes, total: stat.bytes, done: true };
            Ok(progressed(StatusCode::OK, id, progress))
        }
        _ => Err(blobs::Error::UploadNotFound { id }.into()),
    }
}

/// Whether it is there, and how large it is.
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
    let Some(range) = asked.to_str().ok().and_then(|asked| range::asked_for(asked, bytes)) else {
        let detail = format!("the blob has {bytes} bytes; ask for one part of them, like `bytes=0-1023`");
        let refused = Refused::saying(ContentFault::BadRange.into(), detail).at("Range");
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

/// Waits for the first piece: what turns out to be damaged by then is refused in words. Later nothing is left but to
/// break off, and whoever counts notices.
async fn streamed(id: BlobId, mut reading: Reading) -> Result<Body, Refused> {
    let first: Bytes = reading.try_next().await?.unwrap_or_default();
    let rest = reading.inspect_err(move |error| tracing::error!(%id, %error, "a blob breaks off while it is read"));
    Ok(Body::from_stream(stream::iter([Ok(first)]).chain(rest)))
}

fn answer(status: StatusCode, id: BlobId, length: u64, content: Body) -> Response {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(body::OCTETS));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // Under one name there is ever only one content.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    // It is somebody's content, and must not become a page of ours.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", id.hex())) {
        headers.insert(header::ETAG, tag);
    }
    response
}
