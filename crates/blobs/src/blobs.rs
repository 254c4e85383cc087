//! Blob store: put, look up and read blobs.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, TryStreamExt};
use model::blob::BlobId;

use crate::blocking::{blocking, join};
use crate::cache::Cache;
use crate::damaged_blobs::DamagedBlobs;
use crate::format::{HEADER_BYTES, Header};
use crate::key_locks::KeyLocks;
use crate::keys::blob_key;
use crate::limits::{IDS_MAX, PIECE_BYTES_MAX};
use crate::pack::{Packed, Packer};
use crate::peer::Intake;
use crate::protection::Protection;
use crate::reader::Reader;
use crate::scratch::Scratch;
use crate::storage::Storage;
use crate::uploads::Uploads;
use crate::workers::registry::Registry;
use crate::{ContentStream, Error, Options, tree};

/// Concurrent lookups of one [`Blobs::missing`] call.
const LOOKUPS_CONCURRENT_MAX: usize = 32;

/// Content up to this size is hashed inline, larger content on a blocking thread.
const INLINE_HASH_BYTES_MAX: usize = 64 << 10;

/// Handle to the blob store. Cheap to clone; clones share the store.
#[derive(Debug, Clone)]
pub struct Blobs {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub options: Options,
    pub storage: Storage,
    pub scratch: Arc<Scratch>,
    pub protection: Arc<Protection>,
    pub damaged: Arc<DamagedBlobs>,
    /// Serialises puts of the same content: the second must not report as durable what the first is still syncing.
    pub put_locks: Arc<KeyLocks<BlobId>>,
    pub uploads: Arc<Uploads>,
    pub intake: Intake,
    pub cache: Arc<Cache>,
    pub registry: Registry,
    pub collecting: Arc<tokio::sync::Mutex<()>>,
    _lock: File,
}

/// Sizes of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Plain content.
    pub bytes: u64,
    /// Stored object, compressed.
    pub stored_bytes: u64,
}

impl Blobs {
    /// Opens the store. Creates missing directories.
    pub async fn open(options: Options) -> Result<Self, Error> {
        let work = options.work.clone();
        let limits = options.clone();
        let (lock, scratch, uploads, cache) = blocking(move || {
            tree::create_all(&work)?;
            let lock = tree::try_lock(&work)?.ok_or(Error::InUse { directory: work.clone() })?;
            let scratch = Arc::new(Scratch::open(&work.join("scratch"))?);
            let uploads = Uploads::open(&work.join("uploads"), &limits)?;
            let cache = Cache::open(&work.join("cache"), &scratch, limits.cache_bytes_max)?;
            Ok((lock, scratch, uploads, cache))
        })
        .await?;
        let storage = Storage::open(&options, &scratch).await?;
        let shared = Shared {
            storage,
            scratch,
            protection: Arc::new(Protection::new(options.grace, SystemTime::now())),
            damaged: Arc::default(),
            put_locks: Arc::default(),
            uploads: Arc::new(uploads),
            intake: Intake::new(options.peer_uploads),
            cache: Arc::new(cache),
            registry: Registry::default(),
            collecting: Arc::default(),
            options,
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Stores `content`, durably when this returns. Existing content is not written again.
    pub async fn put(&self, content: Bytes) -> Result<BlobId, Error> {
        self.check_size(content.len() as u64)?;
        let id = if content.len() <= INLINE_HASH_BYTES_MAX {
            BlobId::of(&content)
        } else {
            let content = content.clone();
            blocking(move || Ok(BlobId::of(&content))).await?
        };
        self.shared.protection.touch(id).await;
        if self.has(id).await? {
            // A concurrent put may have made it visible but not yet durable.
            drop(self.shared.put_locks.lock(id).await);
            return Ok(id);
        }
        let mut packer = self.packer(Some(content.len() as u64))?;
        let packed = blocking(move || {
            packer.write(&content)?;
            packer.finish()
        })
        .await?;
        self.store(packed).await
    }

    /// [`Blobs::put`] for the content of a file. Also returns its size.
    pub async fn put_file(&self, path: &Path) -> Result<(BlobId, u64), Error> {
        let path = path.to_path_buf();
        let this = self.clone();
        let packed = blocking(move || {
            let file = File::open(&path).map_err(Error::io("open", &path))?;
            let found = file.metadata().map_err(Error::io("read the size of", &path))?;
            if !found.is_file() {
                return Err(Error::bad_path(&path.to_string_lossy(), "it is not a file"));
            }
            this.pack_file(file, &path, u64::MAX)
        })
        .await?;
        let bytes = packed.plain_bytes;
        Ok((self.store(packed).await?, bytes))
    }

    /// [`Blobs::put`] for streamed content. Also returns its size.
    pub async fn put_stream<E: std::error::Error>(
        &self,
        content: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<(BlobId, u64), Error> {
        let mut content = pin!(content);
        let mut packer = self.packer(None)?;
        let mut gathered = BytesMut::new();
        loop {
            let piece = content.try_next().await.map_err(|error| Error::Interrupted { reason: error.to_string() })?;
            let ended = piece.is_none();
            gathered.extend_from_slice(&piece.unwrap_or_default());
            if gathered.len() >= PIECE_BYTES_MAX || ended {
                let part = gathered.split();
                packer = blocking(move || {
                    packer.write(&part)?;
                    Ok(packer)
                })
                .await?;
            }
            if ended {
                break;
            }
        }
        let packed = blocking(move || packer.finish()).await?;
        let bytes = packed.plain_bytes;
        Ok((self.store(packed).await?, bytes))
    }

    /// The subset of `ids` that must be uploaded. The others are protected from garbage collection for the grace
    /// period, since the caller is about to refer to them.
    pub async fn missing(&self, ids: &[BlobId]) -> Result<Vec<BlobId>, Error> {
        if ids.len() > IDS_MAX {
            return Err(Error::TooMany { what: "blobs in one request", limit: IDS_MAX });
        }
        if let Some(peer) = self.shared.storage.peer() {
            return peer.missing(ids).await;
        }
        let lookups = futures_util::stream::iter(ids.to_vec()).map(|id| async move {
            self.shared.protection.touch(id).await;
            Ok::<_, Error>((!self.has(id).await?).then_some(id))
        });
        lookups
            .buffered(LOOKUPS_CONCURRENT_MAX)
            .try_filter_map(|missing| async move { Ok(missing) })
            .try_collect()
            .await
    }

    pub async fn stat(&self, id: BlobId) -> Result<Option<Stat>, Error> {
        if let Some(peer) = self.shared.storage.peer() {
            return peer.stat(id).await;
        }
        let Some((start, stored_bytes)) = self.shared.storage.get_start(&blob_key(id), HEADER_BYTES).await? else {
            return Ok(None);
        };
        let header = self.shared.damaged.record(id, Header::decode(&start, stored_bytes, id))?;
        Ok(Some(Stat { bytes: header.plain_bytes, stored_bytes }))
    }

    /// Reads the whole content. Content of a peer is read through the cache, so that it is fetched once.
    pub async fn read(&self, id: BlobId) -> Result<ContentStream, Error> {
        if self.shared.storage.peer().is_some() {
            match self.materialise(id).await {
                Ok(pinned) => return ContentStream::whole_file(pinned).await,
                Err(Error::CacheFull { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ContentStream::whole(self.reader(id).await?))
    }

    /// Reads a range of the content. The whole blob is first unpacked into the cache and verified, so the range is
    /// verified too and further ranges are cheap. A blob too large for the cache is unpacked for every range.
    pub async fn read_range(&self, id: BlobId, range: Range<u64>) -> Result<ContentStream, Error> {
        let stat = self.stat(id).await?.ok_or(Error::NotFound { id })?;
        if range.start > range.end || range.end > stat.bytes {
            return Err(Error::BadRange { start: range.start, end: range.end, bytes: stat.bytes });
        }
        match self.materialise(id).await {
            Ok(pinned) => Ok(ContentStream::range_of_file(pinned, range)),
            Err(Error::CacheFull { .. }) => Ok(ContentStream::range_of_blob(self.reader(id).await?, range)),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn reader(&self, id: BlobId) -> Result<Reader, Error> {
        self.shared.protection.touch(id).await;
        let object = self.shared.storage.get_blob(id).await?.ok_or(Error::NotFound { id })?;
        Reader::open(id, object, self.shared.options.blob_bytes_max, &self.shared.damaged).await
    }

    /// Whether the blob exists and is not known to be damaged.
    pub(crate) async fn has(&self, id: BlobId) -> Result<bool, Error> {
        Ok(!self.shared.damaged.contains(id) && self.shared.storage.has_blob(id).await?)
    }

    pub(crate) fn packer(&self, plain_bytes: Option<u64>) -> Result<Packer, Error> {
        Packer::new(&self.shared.storage.scratch, self.shared.options.blob_bytes_max, plain_bytes)
    }

    pub(crate) fn check_size(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.shared.options.blob_bytes_max;
        if bytes > limit {
            return Err(Error::TooLarge { what: "a blob".to_owned(), bytes, limit });
        }
        Ok(())
    }

    /// Blocks. Reads until end of file, also if the file grows meanwhile, but at most `bytes_max`.
    pub(crate) fn pack_file(&self, mut file: File, path: &Path, bytes_max: u64) -> Result<Packed, Error> {
        let bytes_max = bytes_max.min(self.shared.options.blob_bytes_max);
        let mut packer = Packer::new(&self.shared.storage.scratch, bytes_max, None)?;
        let mut piece = vec![0; PIECE_BYTES_MAX];
        loop {
            match file.read(&mut piece) {
                Ok(0) => return packer.finish(),
                Ok(bytes) => packer.write(&piece[..bytes])?,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", path)(error)),
            }
        }
    }

    /// Publishes packed content unless the blob exists. Runs to completion even if the caller is dropped, so that no
    /// later put finds it half done.
    pub(crate) async fn store(&self, packed: Packed) -> Result<BlobId, Error> {
        let this = self.clone();
        join(tokio::spawn(async move { this.publish(packed).await })).await
    }

    async fn publish(&self, packed: Packed) -> Result<BlobId, Error> {
        let id = packed.id;
        let _guard = self.shared.put_locks.lock(id).await;
        self.shared.protection.touch(id).await;
        // A peer finds out by itself whether it has the blob, in the same round trip.
        if self.shared.storage.peer().is_some() || !self.has(id).await? {
            self.shared.storage.publish_blob(packed).await?;
            self.shared.damaged.remove(id);
            // The write may have taken longer than the grace period.
            self.shared.protection.touch(id).await;
        }
        Ok(id)
    }
}
