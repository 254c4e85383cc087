//! Content: uploaded only where the server lacks it, piece by piece so that a break costs one piece, and verified on
//! its way back.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use model::blob::BlobId;
use model::view::{BlobList, MissingView, UploadView};
use tokio::time::sleep;

use crate::client::{Client, JSON, to_json};
use crate::error::Error;
use crate::transport::{Ask, Transport};

const OCTETS: &str = "application/octet-stream";
/// How much one request carries: enough to be fast, little enough to be sent again.
const PIECE_BYTES: u64 = 4 << 20;
/// How many blobs one question names; the server takes no more.
const ASKED_MAX: usize = 10_000;
/// How much of a file is hashed at once.
const HASHED_BYTES: usize = 256 << 10;

/// What is to be uploaded.
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

/// Content and its name.
#[derive(Debug, Clone)]
pub struct Named {
    pub content: Content,
    pub id: BlobId,
    pub bytes: u64,
}

/// Finds out what content is called. Blocks while it reads a file.
pub fn name(content: Content) -> Result<Named, Error> {
    let (id, bytes) = match &content {
        Content::Bytes(bytes) => (BlobId::of(bytes), bytes.len() as u64),
        Content::File(path) => hash_file(path).map_err(failed("read", path))?,
    };
    Ok(Named { content, id, bytes })
}

fn hash_file(path: &Path) -> std::io::Result<(BlobId, u64)> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; HASHED_BYTES];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((BlobId(*hasher.finalize().as_bytes()), hasher.count())),
            Ok(bytes) => drop(hasher.update(&piece[..bytes])),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}

impl Named {
    /// The piece that begins at `offset`.
    fn piece(&self, offset: u64) -> Result<Bytes, Error> {
        let length = (self.bytes - offset).min(PIECE_BYTES) as usize;
        match &self.content {
            Content::Bytes(bytes) => {
                let start = offset as usize;
                Ok(bytes.slice(start..start + length))
            }
            Content::File(path) => {
                let mut piece = vec![0; length];
                let read = File::open(path).and_then(|file| file.read_exact_at(&mut piece, offset));
                // Somebody may have made it shorter since it was hashed.
                read.map_err(failed("read", path))?;
                Ok(piece.into())
            }
        }
    }
}

/// The content of a blob, in pieces. Whoever reached the end without an error got the right bytes.
#[derive(Debug)]
pub struct Download {
    id: BlobId,
    body: Incoming,
    hasher: blake3::Hasher,
    transport: Arc<Transport>,
}

impl Download {
    /// The next bytes; nothing at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| self.transport.unreachable(error))?;
            // Trailers are of no interest.
            if let Ok(bytes) = frame.into_data() {
                self.hasher.update(&bytes);
                return Ok(Some(bytes));
            }
        }
        let found = BlobId(*self.hasher.finalize().as_bytes());
        if found == self.id {
            return Ok(None);
        }
        Err(Error::Protocol(format!("it sent {found} for {}: the content was damaged on its way", self.id)))
    }
}

impl Client {
    /// Of these blobs, those that the server lacks.
    pub async fn missing(&self, blobs: &[BlobId]) -> Result<Vec<BlobId>, Error> {
        let mut missing = Vec::new();
        for some in blobs.chunks(ASKED_MAX) {
            let asked = BlobList { blobs: some.to_vec() };
            let ask = Ask::new(Method::POST, "/v1/blobs/missing").body(JSON, to_json(&asked)?);
            let answer: MissingView = self.answer(&ask).await?;
            missing.extend(answer.missing);
        }
        Ok(missing)
    }

    /// Makes the server have this content, sending it only if it lacks it.
    pub async fn put_blob(&self, content: impl Into<Content>) -> Result<Named, Error> {
        let content = content.into();
        let named = tokio::task::spawn_blocking(move || name(content)).await;
        let named = named.map_err(|error| Error::Protocol(format!("it could not be hashed: {error}")))??;
        if !self.missing(&[named.id]).await?.is_empty() {
            self.upload(&named, |_| {}).await?;
        }
        Ok(named)
    }

    /// Sends content that the server lacks, going on where an earlier upload stopped. After a broken connection it
    /// asks how far it got and goes on, a bounded number of times in a row. `sent` hears how much is there by now.
    pub async fn upload(&self, named: &Named, mut sent: impl FnMut(u64)) -> Result<(), Error> {
        let options = self.transport.options();
        let (mut failures, mut pause) = (0, options.retry_pause);
        // What fits into one piece is simply sent, whatever came before.
        let mut offset = (named.bytes <= PIECE_BYTES).then_some(0);
        loop {
            match self.send_next(named, offset).await {
                Ok(progress) if progress.done => {
                    sent(named.bytes);
                    return Ok(());
                }
                Ok(progress) => {
                    sent(progress.received);
                    offset = Some(progress.received);
                    (failures, pause) = (0, options.retry_pause);
                }
                Err(error) if failures < options.reconnects && may_go_on(&error) => {
                    failures += 1;
                    offset = None;
                    sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends one piece; where it belongs is asked for if it is not known.
    async fn send_next(&self, named: &Named, offset: Option<u64>) -> Result<UploadView, Error> {
        let id = named.id;
        let offset = match offset {
            Some(offset) => offset,
            None => match self.get::<UploadView>(format!("/v1/blobs/{id}/upload")).await {
                Ok(progress) if progress.done => return Ok(progress),
                // Somebody announced another size: the server forgets that when ours begins.
                Ok(progress) if progress.bytes == named.bytes && progress.received < named.bytes => progress.received,
                Ok(_) => 0,
                Err(error) if error.status() == Some(404) => 0,
                Err(error) => return Err(error),
            },
        };
        let piece = named.piece(offset)?;
        let ask = Ask::new(Method::PUT, format!("/v1/blobs/{id}"));
        // Nothing has no first and no last byte.
        let last = (offset + piece.len() as u64).checked_sub(1);
        let content_range = last.map(|last| format!("bytes {offset}-{last}/{}", named.bytes));
        self.answer(&Ask { content_range, ..ask.body(OCTETS, piece) }).await
    }

    pub async fn get_blob(&self, id: BlobId) -> Result<Download, Error> {
        let body = self.transport.open(&Ask::new(Method::GET, format!("/v1/blobs/{id}"))).await?;
        Ok(Download { id, body, hasher: blake3::Hasher::new(), transport: Arc::clone(&self.transport) })
    }
}

/// Whether the upload can be taken up again: the connection broke, or the server sees its end of it a little later.
fn may_go_on(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Refused(problem) => {
            matches!(problem.code.as_str(), "wrong_offset" | "busy" | "not_ready" | "stopping" | "interrupted")
        }
        Error::Protocol(_) | Error::Address(_) | Error::File { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_bytes_have_the_same_name_and_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("content");
        let bytes: Vec<u8> = (0..PIECE_BYTES + 3).map(|number| number as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let bytes = Bytes::from(bytes);
        let (file, memory) = (name(path.as_path().into()).unwrap(), name(bytes.clone().into()).unwrap());
        assert_eq!((file.id, file.bytes), (memory.id, memory.bytes));
        assert_eq!(file.id, BlobId::of(&bytes));
        for offset in [0, 5, PIECE_BYTES] {
            assert_eq!(file.piece(offset).unwrap(), memory.piece(offset).unwrap());
        }
        assert_eq!(file.piece(PIECE_BYTES).unwrap().len(), 3);
        assert!(matches!(name(directory.path().join("none").as_path().into()), Err(Error::File { .. })));
    }
}
