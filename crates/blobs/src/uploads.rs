//! Resumable uploads in pieces of blobs with a known id.
//!
//! The received content is stored plain in a file named after the blob and the total size, which is the only state. The
//! file is not synced: a power failure may lose an upload but never a blob, since the content is verified before it is
//! published.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt};
use model::blob::BlobId;
use parking_lot::Mutex;

use crate::blocking::blocking;
use crate::limits::PIECE_BYTES_MAX;
use crate::{Blobs, Error, Options, tree};

/// Progress of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Offset of the next piece.
    pub received: u64,
    pub total: u64,
    /// The blob is verified and durable. While false, another append is needed, if only an empty one.
    pub done: bool,
}

#[derive(Debug)]
pub(crate) struct Uploads {
    directory: PathBuf,
    uploads_max: usize,
    abandoned_after: Duration,
    uploads: Mutex<HashMap<BlobId, Upload>>,
}

#[derive(Debug, Clone, Copy)]
struct Upload {
    received: u64,
    total: u64,
    /// A caller is appending.
    busy: bool,
}

impl Upload {
    fn progress(self) -> Progress {
        Progress { received: self.received, total: self.total, done: false }
    }
}

impl Uploads {
    pub fn open(directory: &Path, options: &Options) -> Result<Self, Error> {
        tree::create_all(directory)?;
        let mut uploads = HashMap::new();
        for entry in fs::read_dir(directory).map_err(Error::io("list", directory))? {
            let entry = entry.map_err(Error::io("list", directory))?;
            let received = entry.metadata().map_err(Error::io("read the size of", &entry.path()))?.len();
            match entry.file_name().to_str().and_then(parse_name) {
                // A second file for one blob: the process was killed while it replaced an upload of another size.
                Some((id, total)) if received <= total && !uploads.contains_key(&id) => {
                    uploads.insert(id, Upload { received, total, busy: false });
                }
                _ => tree::remove(&entry.path())?,
            }
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            uploads_max: options.uploads_max,
            abandoned_after: options.upload_abandoned_after,
            uploads: Mutex::new(uploads),
        })
    }

    fn path(&self, id: BlobId, total: u64) -> PathBuf {
        self.directory.join(format!("{}.{total}", id.hex()))
    }

    fn begin(&self, id: BlobId, total: u64) -> Result<Progress, Error> {
        let mut uploads = self.uploads.lock();
        if let Some(upload) = uploads.get(&id).copied() {
            if upload.total == total {
                return Ok(upload.progress());
            }
            // A blob has one size, so one of the two callers is wrong. An active upload wins, an idle one is replaced.
            if upload.busy {
                return Err(busy(id));
            }
            tree::remove(&self.path(id, upload.total))?;
            uploads.remove(&id);
        }
        if uploads.len() >= self.uploads_max {
            return Err(Error::Busy { what: format!("{} uploads are in progress, which is the limit", uploads.len()) });
        }
        let path = self.path(id, total);
        File::create(&path).map_err(Error::io("create the file", &path))?;
        let upload = Upload { received: 0, total, busy: false };
        uploads.insert(id, upload);
        Ok(upload.progress())
    }

    fn progress(&self, id: BlobId) -> Option<Progress> {
        self.uploads.lock().get(&id).map(|upload| upload.progress())
    }

    /// Gives the caller the exclusive right to append.
    fn claim(self: &Arc<Self>, id: BlobId, offset: u64) -> Result<Writer, Error> {
        let mut uploads = self.uploads.lock();
        let upload = uploads.get_mut(&id).ok_or(Error::UploadNotFound { id })?;
        if upload.busy {
            return Err(busy(id));
        }
        if upload.received != offset {
            return Err(Error::WrongOffset { id, expected: upload.received, requested: offset });
        }
        let path = self.path(id, upload.total);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::io("open", &path))?;
        upload.busy = true;
        let (received, total) = (upload.received, upload.total);
        Ok(Writer { uploads: Arc::clone(self), id, path, file, received, total, ended: false })
    }

    fn cancel(&self, id: BlobId) -> Result<bool, Error> {
        let mut uploads = self.uploads.lock();
        match uploads.get(&id) {
            None => Ok(false),
            Some(upload) if upload.busy => Err(busy(id)),
            Some(upload) => {
                tree::remove(&self.path(id, upload.total))?;
                uploads.remove(&id);
                Ok(true)
            }
        }
    }

    fn remove_abandoned(&self, now: SystemTime) -> Result<usize, Error> {
        let mut uploads = self.uploads.lock();
        let mut abandoned = Vec::new();
        for (id, upload) in uploads.iter().filter(|(_, upload)| !upload.busy) {
            let path = self.path(*id, upload.total);
            let changed =
                fs::metadata(&path).and_then(|found| found.modified()).map_err(Error::io("inspect", &path))?;
            if now.duration_since(changed).is_ok_and(|age| age >= self.abandoned_after) {
                tree::remove(&path)?;
                abandoned.push(*id);
            }
        }
        for id in &abandoned {
            uploads.remove(id);
        }
        Ok(abandoned.len())
    }
}

fn busy(id: BlobId) -> Error {
    Error::Busy { what: format!("another upload of {id} is in progress") }
}

fn parse_name(name: &str) -> Option<(BlobId, u64)> {
    let (hex, total) = name.split_once('.')?;
    let id = format!("blob:{hex}").parse().ok()?;
    Some((id, total.parse().ok()?))
}

/// Exclusive right to append to an upload. It is moved into the blocking write and back, so that no other append can
/// begin while the write of a dropped caller is still running.
struct Writer {
    uploads: Arc<Uploads>,
    id: BlobId,
    path: PathBuf,
    file: File,
    received: u64,
    total: u64,
    ended: bool,
}

impl Writer {
    fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        let received = self.received + piece.len() as u64;
        if received > self.total {
            let what = format!("the content announced as {}", self.id);
            return Err(Error::TooLarge { what, bytes: received, limit: self.total });
        }
        if let Err(error) = self.file.write_all_at(piece, self.received) {
            let error = Error::io("write", &self.path)(error);
            // On a full disk the upload is discarded to free space. Otherwise the file is cut back to the last full
            // piece.
            if matches!(error, Error::Full { .. }) || self.file.set_len(self.received).is_err() {
                self.discard();
            }
            return Err(error);
        }
        self.received = received;
        Ok(())
    }

    /// Deletes the upload.
    fn discard(&mut self) {
        tree::remove_or_warn(&self.path);
        self.ended = true;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut uploads = self.uploads.uploads.lock();
        if self.ended {
            uploads.remove(&self.id);
        } else if let Some(upload) = uploads.get_mut(&self.id) {
            upload.received = self.received;
            upload.busy = false;
        }
    }
}

impl Blobs {
    /// Begins or resumes an upload of `total` bytes with a known hash. An idle upload of the same blob with another
    /// size is discarded.
    pub async fn begin_upload(&self, id: BlobId, total: u64) -> Result<Progress, Error> {
        self.check_size(total)?;
        self.shared.protection.touch(id).await;
        if self.has(id).await? {
            return Ok(Progress { received: total, total, done: true });
        }
        let uploads = Arc::clone(&self.shared.uploads);
        blocking(move || uploads.begin(id, total)).await
    }

    /// Progress of an unfinished upload.
    pub fn upload_progress(&self, id: BlobId) -> Option<Progress> {
        self.shared.uploads.progress(id)
    }

    /// Appends to an upload. `offset` must equal the bytes received so far. Only one caller may append at a time. The
    /// call that completes the content verifies and publishes it; content that does not match its id is discarded. If
    /// `content` fails, the bytes before the failure are retained. A client that missed the last response may resend
    /// the last piece.
    pub async fn append<E: std::error::Error>(
        &self,
        id: BlobId,
        offset: u64,
        content: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<Progress, Error> {
        let uploads = Arc::clone(&self.shared.uploads);
        let mut writer = match blocking(move || uploads.claim(id, offset)).await {
            Ok(writer) => writer,
            Err(error @ Error::UploadNotFound { .. }) => return self.finished_upload(id).await?.ok_or(error),
            Err(error) => return Err(error),
        };
        let mut content = pin!(content);
        let mut gathered = BytesMut::new();
        loop {
            let piece = content.try_next().await;
            let more = matches!(piece, Ok(Some(_)));
            if let Ok(Some(piece)) = &piece {
                gathered.extend_from_slice(piece);
            }
            if !gathered.is_empty() && (gathered.len() >= PIECE_BYTES_MAX || !more) {
                let part = gathered.split();
                writer = blocking(move || {
                    writer.write(&part)?;
                    Ok(writer)
                })
                .await?;
            }
            match piece {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return Err(Error::Interrupted { reason: error.to_string() }),
            }
        }
        if writer.received < writer.total {
            return Ok(Progress { received: writer.received, total: writer.total, done: false });
        }
        self.finish_upload(writer).await
    }

    async fn finished_upload(&self, id: BlobId) -> Result<Option<Progress>, Error> {
        self.shared.protection.touch(id).await;
        if !self.has(id).await? {
            return Ok(None);
        }
        let total = self.stat(id).await?.map(|stat| stat.bytes);
        Ok(total.map(|total| Progress { received: total, total, done: true }))
    }

    /// Discards an upload. Returns whether there was one.
    pub async fn cancel_upload(&self, id: BlobId) -> Result<bool, Error> {
        let uploads = Arc::clone(&self.shared.uploads);
        blocking(move || uploads.cancel(id)).await
    }

    /// Removes uploads without an append for too long, also of runner nodes, and returns their number. To be called periodically.
    pub async fn remove_abandoned_uploads(&self, now: SystemTime) -> Result<usize, Error> {
        let uploads = Arc::clone(&self.shared.uploads);
        let shared = Arc::clone(&self.shared);
        blocking(move || Ok(uploads.remove_abandoned(now)? + shared.intake.remove_abandoned(now))).await
    }

    async fn finish_upload(&self, writer: Writer) -> Result<Progress, Error> {
        let this = self.clone();
        let (mut writer, packed) = blocking(move || {
            let mut writer = writer;
            let packed = writer.file.try_clone().map_err(Error::io("open", &writer.path)).and_then(|file| {
                // The clone shares the file position, which is still 0: all writes are positioned.
                this.pack_file(file, &writer.path, writer.total)
            });
            match packed {
                Ok(packed) if packed.id == writer.id => Ok((writer, packed)),
                Ok(packed) => {
                    writer.discard();
                    Err(Error::Mismatch { id: writer.id, found: packed.id })
                }
                Err(error) => {
                    if matches!(error, Error::Full { .. }) {
                        writer.discard();
                    }
                    Err(error)
                }
            }
        })
        .await?;
        let stored = self.store(packed).await;
        blocking(move || {
            if matches!(stored, Ok(_) | Err(Error::Full { .. })) {
                writer.discard();
            }
            stored?;
            Ok(Progress { received: writer.total, total: writer.total, done: true })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_file_names_are_parsed() {
        let id = BlobId::of(b"x");
        assert_eq!(parse_name(&format!("{}.17", id.hex())), Some((id, 17)));
        for wrong in ["", "x.1", "17", &format!("{}.", id.hex()), &format!("{}.-1", id.hex())] {
            assert_eq!(parse_name(wrong), None, "{wrong}");
        }
    }
}
