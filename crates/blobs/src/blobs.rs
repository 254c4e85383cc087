//! The store of blobs: what goes in, what is there, what comes out.

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

use crate::blocking::{blocking, settled};
use crate::cache::Cache;
use crate::damaged::Damaged;
use crate::format::{HEADER_BYTES, Header};
use crate::keys::blob_key;
use crate::limits::{IDS_MAX, PIECE_BYTES_MAX};
use crate::pack::{Packed, Packer};
use crate::place::Place;
use crate::protection::Protection;
use crate::scratch::Scratch;
use crate::source::Reader;
use crate::turns::Turns;
use crate::uploads::Uploads;
use crate::workers::registry::Registry;
use crate::{Error, Options, Reading, tree};

/// How many questions about single blobs are on their way at the same time.
const QUESTIONS_AT_ONCE: usize = 32;

/// Content up to this size is hashed at once; more is worth a thread.
const HASH_AT_ONCE_BYTES: usize = 64 << 10;

/// Cheap to clone; all clones are the same store.
#[derive(Debug, Clone)]
pub struct Blobs {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub options: Options,
    pub place: Place,
    pub scratch: Arc<Scratch>,
    pub protection: Arc<Protection>,
    pub damaged: Arc<Damaged>,
    /// Puts of the same content: the second one must not report durable what the first one is still syncing.
    pub puts: Arc<Turns<BlobId>>,
    pub uploads: Arc<Uploads>,
    pub cache: Arc<Cache>,
    pub registry: Registry,
    pub collecting: Arc<tokio::sync::Mutex<()>>,
    _lock: File,
}

/// The sizes of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Of the content.
    pub bytes: u64,
    /// As it is kept.
    pub stored_bytes: u64,
}

impl Blobs {
    /// Opens what is there, and makes what is not.
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
        let place = Place::open(&options.location, &scratch).await?;
        let shared = Shared {
            place,
            scratch,
            protection: Arc::new(Protection::new(options.grace, SystemTime::now())),
            damaged: Arc::default(),
            puts: Arc::default(),
            uploads: Arc::new(uploads),
            cache: Arc::new(cache),
            registry: Registry::default(),
            collecting: Arc::default(),
            options,
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Keeps `content`, durably when this returns. Content that is there already is not written again.
    pub async fn put(&self, content: Bytes) -> Result<BlobId, Error> {
        self.check_size(content.len() as u64)?;
        let id = if content.len() <= HASH_AT_ONCE_BYTES {
            BlobId::of(&content)
        } else {
            let content = content.clone();
            blocking(move || Ok(BlobId::of(&content))).await?
        };
        self.shared.protection.touch(id).await;
        if self.has(id).await? {
            // Another put may have made it visible and not durable yet.
            drop(self.shared.puts.wait(id).await);
            return Ok(id);
        }
        let mut packer = self.packer(Some(content.len() as u64))?;
        let packed = blocking(move || {
            packer.write(&content)?;
            packer.finish()
        })
        .await?;
        self.keep(packed).await
    }

    /// As [`Blobs::put`], for content that is in a file. Says how large it is.
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
        Ok((self.keep(packed).await?, bytes))
    }

    /// As [`Blobs::put`], for content that comes bit by bit. Says how large it was.
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
        Ok((self.keep(packed).await?, bytes))
    }

    /// Of `ids`, those that must be uploaded. The others are safe from collection for the grace period: whoever asks is
    /// about to refer to them.
    pub async fn missing(&self, ids: &[BlobId]) -> Result<Vec<BlobId>, Error> {
        if ids.len() > IDS_MAX {
            return Err(Error::TooMany { what: "blobs in one question", limit: IDS_MAX });
        }
        let questions = futures_util::stream::iter(ids.to_vec()).map(|id| async move {
            self.shared.protection.touch(id).await;
            Ok::<_, Error>((!self.has(id).await?).then_some(id))
        });
        questions.buffered(QUESTIONS_AT_ONCE).try_filter_map(|missing| async move { Ok(missing) }).try_collect().await
    }

    pub async fn stat(&self, id: BlobId) -> Result<Option<Stat>, Error> {
        let Some((start, stored_bytes)) = self.shared.place.get_start(&blob_key(id), HEADER_BYTES).await? else {
            return Ok(None);
        };
        let header = self.shared.damaged.note(id, Header::decode(&start, stored_bytes, id))?;
        Ok(Some(Stat { bytes: header.plain_bytes, stored_bytes }))
    }

    /// The whole content.
    pub async fn read(&self, id: BlobId) -> Result<Reading, Error> {
        Ok(Reading::whole(self.reader(id).await?))
    }

    /// A part of the content. The whole is unpacked into the cache and verified first, so that the part is as
    /// trustworthy as the whole, and further parts are cheap. A blob that does not fit there is unpacked for every part.
    pub async fn read_range(&self, id: BlobId, range: Range<u64>) -> Result<Reading, Error> {
        let stat = self.stat(id).await?.ok_or(Error::NotFound { id })?;
        if range.start > range.end || range.end > stat.bytes {
            return Err(Error::BadRange { start: range.start, end: range.end, bytes: stat.bytes });
        }
        match self.materialise(id).await {
            Ok(pinned) => Ok(Reading::part_of_file(pinned, range)),
            Err(Error::CacheFull { .. }) => Ok(Reading::part_of(self.reader(id).await?, range)),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn reader(&self, id: BlobId) -> Result<Reader, Error> {
        self.shared.protection.touch(id).await;
        let object = self.shared.place.get(&blob_key(id)).await?.ok_or(Error::NotFound { id })?;
        Reader::open(id, object, self.shared.options.blob_bytes_max, &self.shared.damaged).await
    }

    /// Whether it is there, and not known to be damaged.
    pub(crate) async fn has(&self, id: BlobId) -> Result<bool, Error> {
        Ok(!self.shared.damaged.contains(id) && self.shared.place.head(&blob_key(id)).await?.is_some())
    }

    pub(crate) fn packer(&self, plain_bytes: Option<u64>) -> Result<Packer, Error> {
        Packer::new(&self.shared.place.scratch, self.shared.options.blob_bytes_max, plain_bytes)
    }

    pub(crate) fn check_size(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.shared.options.blob_bytes_max;
        if bytes > limit {
            return Err(Error::TooLarge { what: "a blob".to_owned(), bytes, limit });
        }
        Ok(())
    }

    /// Blocks. Reads to the file's end, wherever that is by then, but not beyond `bytes_max`.
    pub(crate) fn pack_file(&self, mut file: File, path: &Path, bytes_max: u64) -> Result<Packed, Error> {
        let bytes_max = bytes_max.min(self.shared.options.blob_bytes_max);
        let mut packer = Packer::new(&self.shared.place.scratch, bytes_max, None)?;
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

    /// Puts complete content in its place, unless it is there. Goes on though nobody waits for it: who comes next must
    /// find it done, not half done.
    pub(crate) async fn keep(&self, packed: Packed) -> Result<BlobId, Error> {
        let this = self.clone();
        settled(tokio::spawn(async move { this.publish(packed).await })).await
    }

    async fn publish(&self, packed: Packed) -> Result<BlobId, Error> {
        let id = packed.id;
        let _turn = self.shared.puts.wait(id).await;
        self.shared.protection.touch(id).await;
        if !self.has(id).await? {
            self.shared.place.publish(blob_key(id), packed.body).await?;
            self.shared.damaged.forget(id);
            // It may have taken longer than the grace period.
            self.shared.protection.touch(id).await;
        }
        Ok(id)
    }
}
