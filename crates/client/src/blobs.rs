//! Blobs: chunked, resumable upload of the ones the server lacks, and resumable, verified download.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{BlobList, MissingView, UploadView};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_RANGE, HeaderMap};
use hyper::{Method, StatusCode};
use model::blob::BlobId;

use crate::backoff::Outage;
use crate::client::{Client, to_json};
use crate::error::Error;
use crate::request::{ApiRequest, Repeat};
use crate::transport::Transport;

const OCTETS: &str = "application/octet-stream";
/// Upload size of one request: large enough to be fast, small enough to be resent.
const CHUNK_BYTES: u64 = 4 << 20;
/// Limit of blob ids in one request, set by the server.
const MISSING_IDS_MAX: usize = 10_000;
/// Read buffer of file hashing.
const HASH_BUFFER_BYTES: usize = 256 << 10;

/// Content to upload.
#[derive(Debug, Clone)]
pub enum Content {
    Bytes(Bytes),
    File(PathBuf),
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&Path> for Content {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

/// Content with its hash and size.
#[derive(Debug, Clone)]
pub struct HashedContent {
    pub content: Content,
    pub id: BlobId,
    pub bytes: u64,
}

/// Hashes content. Blocks while reading a file.
pub fn hash(content: Content) -> Result<HashedContent, Error> {
    let (id, bytes) = match &content {
        Content::Bytes(bytes) => (BlobId::of(bytes), bytes.len() as u64),
        Content::File(path) => hash_file(path).map_err(file_error("read", path))?,
    };
    Ok(HashedContent { content, id, bytes })
}

fn hash_file(path: &Path) -> std::io::Result<(BlobId, u64)> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; HASH_BUFFER_BYTES];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok((BlobId(*hasher.finalize().as_bytes()), hasher.count())),
            Ok(bytes) => drop(hasher.update(&chunk[..bytes])),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}

impl HashedContent {
    /// The chunk that begins at `offset`.
    fn chunk(&self, offset: u64) -> Result<Bytes, Error> {
        let length = (self.bytes - offset).min(CHUNK_BYTES) as usize;
        match &self.content {
            Content::Bytes(bytes) => {
                let start = offset as usize;
                Ok(bytes.slice(start..start + length))
            }
            Content::File(path) => {
                let mut chunk = vec![0; length];
                let read = File::open(path).and_then(|file| file.read_exact_at(&mut chunk, offset));
                // Fails if the file was truncated after hashing.
                read.map_err(file_error("read", path))?;
                Ok(chunk.into())
            }
        }
    }
}

/// Stream of a blob's content. After a broken connection it resumes where it was; it fails after an outage longer than
/// [`crate::Options::resend_for`]. The hash of the whole content is verified at the end.
#[derive(Debug)]
pub struct Download {
    id: BlobId,
    body: Incoming,
    /// Bytes of the body to drop: the server has sent the content from its beginning again.
    repeated: u64,
    /// Of the content received so far.
    hasher: blake3::Hasher,
    outage: Outage,
    transport: Arc<Transport>,
}

impl Download {
    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    // Trailers are ignored.
                    let Ok(mut bytes) = frame.into_data() else { continue };
                    let repeated = self.repeated.min(bytes.len() as u64);
                    self.repeated -= repeated;
                    let bytes = bytes.split_off(repeated as usize);
                    if bytes.is_empty() {
                        continue;
                    }
                    self.outage.end();
                    self.hasher.update(&bytes);
                    return Ok(Some(bytes));
                }
                Some(Err(error)) => {
                    let error = self.transport.unreachable(error);
                    self.outage.wait_or_fail(error, self.transport.options().resend_for).await?;
                    if self.found() == self.id {
                        // Only the end was missing.
                        return Ok(None);
                    }
                    self.resume().await?;
                }
                None if self.found() == self.id => return Ok(None),
                None => {
                    let (id, found) = (self.id, self.found());
                    return Err(Error::Protocol(format!(
                        "the content of {id} was damaged in transit: its hash is {found}"
                    )));
                }
            }
        }
    }

    /// The blob that the content received so far would be.
    fn found(&self) -> BlobId {
        BlobId(*self.hasher.finalize().as_bytes())
    }

    /// Requests what is missing.
    async fn resume(&mut self) -> Result<(), Error> {
        let received = self.hasher.count();
        let range = (received > 0).then(|| format!("bytes={received}-"));
        let response = self.transport.open_response(&ApiRequest { range, ..content_request(self.id) }).await?;
        self.repeated = match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(response.headers(), received) => 0,
            StatusCode::PARTIAL_CONTENT => {
                return Err(Error::Protocol(format!("the server has sent another part of {} than requested", self.id)));
            }
            _ => received,
        };
        self.body = response.into_body();
        Ok(())
    }
}

impl Client {
    /// The subset of `blobs` the server lacks.
    pub async fn missing(&self, blobs: &[BlobId]) -> Result<Vec<BlobId>, Error> {
        let mut missing = Vec::new();
        for chunk in blobs.chunks(MISSING_IDS_MAX) {
            let list = BlobList { blobs: chunk.to_vec() };
            let request = ApiRequest::post("/v1/blobs/missing", Repeat::Harmless).json(to_json(&list)?);
            let response: MissingView = self.request_json(&request).await?;
            missing.extend(response.missing);
        }
        Ok(missing)
    }

    /// Uploads content unless the server has it.
    pub async fn put_blob(&self, content: impl Into<Content>) -> Result<HashedContent, Error> {
        let content = content.into();
        let content = tokio::task::spawn_blocking(move || hash(content)).await;
        let content = content.map_err(|error| Error::Protocol(format!("hashing failed: {error}")))??;
        if !self.missing(&[content.id]).await?.is_empty() {
            self.upload(&content, |_| {}).await?;
        }
        Ok(content)
    }

    /// Uploads content, resuming an earlier upload. After a broken connection it requests the server's offset and
    /// resumes; it fails after an outage longer than [`crate::Options::resend_for`]. `on_progress` receives the number of
    /// bytes uploaded.
    pub async fn upload(&self, content: &HashedContent, mut on_progress: impl FnMut(u64)) -> Result<(), Error> {
        let mut outage = Outage::default();
        // Single-chunk content is always sent from the start.
        let mut offset = (content.bytes <= CHUNK_BYTES).then_some(0);
        loop {
            match self.send_next(content, offset).await {
                Ok(progress) if progress.done => {
                    on_progress(content.bytes);
                    return Ok(());
                }
                Ok(progress) => {
                    on_progress(progress.received);
                    offset = Some(progress.received);
                    outage.end();
                }
                Err(error) if is_resumable(&error) => {
                    offset = None;
                    outage.wait_or_fail(error, self.options().resend_for).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn progress(&self, id: BlobId) -> Result<UploadView, Error> {
        self.request_json(&single(ApiRequest::get(format!("/v1/blobs/{id}/upload")))).await
    }

    /// Sends one chunk. Without an offset, requests it from the server first.
    async fn send_next(&self, content: &HashedContent, offset: Option<u64>) -> Result<UploadView, Error> {
        let id = content.id;
        let offset = match offset {
            Some(offset) => offset,
            None => match self.progress(id).await {
                Ok(progress) if progress.done => return Ok(progress),
                // An upload with another size is discarded by the server when this one starts.
                Ok(progress) if progress.bytes == content.bytes && progress.received < content.bytes => {
                    progress.received
                }
                Ok(_) => 0,
                Err(error) if error.status() == Some(404) => 0,
                Err(error) => return Err(error),
            },
        };
        let chunk = content.chunk(offset)?;
        let request = ApiRequest::new(Method::PUT, format!("/v1/blobs/{id}"), Repeat::Harmless);
        // Empty content has no byte range.
        let last = (offset + chunk.len() as u64).checked_sub(1);
        let content_range = last.map(|last| format!("bytes {offset}-{last}/{}", content.bytes));
        self.request_json(&single(ApiRequest { content_range, ..request.body(OCTETS, chunk) })).await
    }

    pub async fn get_blob(&self, id: BlobId) -> Result<Download, Error> {
        let body = self.transport.open(&content_request(id)).await?;
        let (hasher, outage, transport) = (blake3::Hasher::new(), Outage::default(), Arc::clone(&self.transport));
        Ok(Download { id, body, repeated: 0, hasher, outage, transport })
    }
}

fn content_request(id: BlobId) -> ApiRequest {
    ApiRequest::get(format!("/v1/blobs/{id}"))
}

/// Whether a partial response begins at this position, as in `bytes 5-9/10`.
fn starts_at(headers: &HeaderMap, position: u64) -> bool {
    let range = headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {position}-")))
}

/// A request that the upload repeats itself: after a failure it continues at the server's offset.
fn single(request: ApiRequest) -> ApiRequest {
    ApiRequest { single: true, ..request }
}

/// Whether the upload can be resumed: the connection broke, or the server has not noticed yet that it did.
fn is_resumable(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Refused(problem) => {
            matches!(problem.code.as_str(), "wrong_offset" | "busy" | "not_ready" | "stopping" | "interrupted")
        }
        Error::OutcomeUnknown { .. } | Error::Protocol(_) | Error::Address(_) | Error::File { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_bytes_have_the_same_hash_and_chunks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("content");
        let bytes: Vec<u8> = (0..CHUNK_BYTES + 3).map(|number| number as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let bytes = Bytes::from(bytes);
        let (file, memory) = (hash(path.as_path().into()).unwrap(), hash(bytes.clone().into()).unwrap());
        assert_eq!((file.id, file.bytes), (memory.id, memory.bytes));
        assert_eq!(file.id, BlobId::of(&bytes));
        for offset in [0, 5, CHUNK_BYTES] {
            assert_eq!(file.chunk(offset).unwrap(), memory.chunk(offset).unwrap());
        }
        assert_eq!(file.chunk(CHUNK_BYTES).unwrap().len(), 3);
        assert!(matches!(hash(directory.path().join("none").as_path().into()), Err(Error::File { .. })));
    }
}
