//! Uploads in pieces: of known content, continued where they stopped, also after a restart.
//!
//! What has arrived is kept plain in a file whose name says of which blob and how much it will be, so that nothing else
//! has to be remembered. It is not synced: a power cut may cost an upload, never a blob, since the whole is
//! checked against its name before it becomes one.

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

/// How far an upload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Where to continue.
    pub received: u64,
    pub total: u64,
    /// The blob is there, verified and durable. Until then there is something left to append, be it nothing.
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
    /// Somebody is appending.
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
                // Of two announcements of one blob the process was killed while replacing the first.
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
            // One name has one size, so one of the two is mistaken. Whoever is writing goes on; a leftover gives way.
            if upload.busy {
                return Err(busy(id));
            }
            tree::remove(&self.path(id, upload.total))?;
            uploads.remove(&id);
        }
        if uploads.len() >= self.uploads_max {
            return Err(Error::Busy { what: format!("{} uploads are unfinished, as many as may be", uploads.len()) });
        }
        let path = self.path(id, total);
        File::create(&path).map_err(Error::io("make the file", &path))?;
        let upload = Upload { received: 0, total, busy: false };
        uploads.insert(id, upload);
        Ok(upload.progress())
    }

    fn progress(&self, id: BlobId) -> Option<Progress> {
        self.uploads.lock().get(&id).map(|upload| upload.progress())
    }

    /// Makes the caller the one who appends.
    fn claim(self: &Arc<Self>, id: BlobId, offset: u64) -> Result<Writer, Error> {
        let mut uploads = self.uploads.lock();
        let upload = uploads.get_mut(&id).ok_or(Error::UploadNotFound { id })?;
        if upload.busy {
            return Err(busy(id));
        }
        if upload.received != offset {
            return Err(Error::WrongOffset { id, expected: upload.received, asked: offset });
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
                fs::metadata(&path).and_then(|found| found.modified()).map_err(Error::io("look at", &path))?;
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
    Error::Busy { what: format!("another upload of {id} is under way") }
}

fn parse_name(name: &str) -> Option<(BlobId, u64)> {
    let (hex, total) = name.split_once('.')?;
    let id = format!("blob:{hex}").parse().ok()?;
    Some((id, total.parse().ok()?))
}

/// The one who appends. It is moved to where files are written and back, so that nobody else can begin while a write of
/// a caller that gave up is still under way.
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
            // On a full disk half an upload is in everybody's way. Otherwise what had arrived is kept, and only that.
            if matches!(error, Error::Full { .. }) || self.file.set_len(self.received).is_err() {
                self.discard();
            }
            return Err(error);
        }
        self.received = received;
        Ok(())
    }

    /// Nothing of the upload is kept.
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
    /// Begins or continues an upload of `total` bytes whose hash is known. An upload of the same blob that announced
    /// another size is dropped.
    pub async fn begin_upload(&self, id: BlobId, total: u64) -> Result<Progress, Error> {
        self.check_size(total)?;
        self.shared.protection.touch(id).await;
        if self.has(id).await? {
            return Ok(Progress { received: total, total, done: true });
        }
        let uploads = Arc::clone(&self.shared.uploads);
        blocking(move || uploads.begin(id, total)).await
    }

    /// How far an upload is that was begun and is not done.
    pub fn upload_progress(&self, id: BlobId) -> Option<Progress> {
        self.shared.uploads.progress(id)
    }

    /// Appends to an upload. `offset` must be what has been received, and one caller at a time may append. The call that
    /// completes the content verifies it and makes it a blob; content that is not what its name says is dropped. When
    /// `content` breaks off, what came before is kept. Who missed the answer to the last piece may send it again.
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

    /// Gives up an upload. Says whether there was one.
    pub async fn cancel_upload(&self, id: BlobId) -> Result<bool, Error> {
        let uploads = Arc::clone(&self.shared.uploads);
        blocking(move || uploads.cancel(id)).await
    }

    /// Removes uploads that nothing was added to for too long, and says how many. To be called now and then.
    pub async fn remove_abandoned_uploads(&self, now: SystemTime) -> Result<usize, Error> {
        let uploads = Arc::clone(&self.shared.uploads);
        blocking(move || uploads.remove_abandoned(now)).await
    }

    async fn finish_upload(&self, writer: Writer) -> Result<Progress, Error> {
        let this = self.clone();
        let (mut writer, packed) = blocking(move || {
            let mut writer = writer;
            let packed = writer.file.try_clone().map_err(Error::io("open", &writer.path)).and_then(|file| {
                // The clone shares the place in the file, which nobody has moved: all writes name theirs.
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
        let kept = self.keep(packed).await;
        blocking(move || {
            if matches!(kept, Ok(_) | Err(Error::Full { .. })) {
                writer.discard();
            }
            kept?;
            Ok(Progress { received: writer.total, total: writer.total, done: true })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_uploads_read_back() {
        let id = BlobId::of(b"x");
        assert_eq!(parse_name(&format!("{}.17", id.hex())), Some((id, 17)));
        for wrong in ["", "x.1", "17", &format!("{}.", id.hex()), &format!("{}.-1", id.hex())] {
            assert_eq!(parse_name(wrong), None, "{wrong}");
        }
    }
}
