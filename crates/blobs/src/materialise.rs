//! Unpacking of blobs to plain, read-only files in the cache.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use model::blob::BlobId;

use crate::blocking::blocking;
use crate::cache::{CacheKey, FILE_MODE, Pinned, Reservation, footprint};
use crate::key_locks::KeyLockGuard;
use crate::limits::PIECE_BYTES_MAX;
use crate::scratch::TempFile;
use crate::{Blobs, Error, tree};

/// Downloads of one blob before its damage is reported.
const DAMAGED_DOWNLOADS_MAX: usize = 3;

struct PartialFile {
    file: TempFile,
    reservation: Reservation,
}

impl Blobs {
    /// Returns a plain, read-only file with verified content, pinned by the guard. Concurrent calls for one blob create
    /// the file once.
    pub async fn materialise(&self, id: BlobId) -> Result<Pinned, Error> {
        let key = CacheKey::Blob(id);
        let cache = &self.shared.cache;
        if let Some(pinned) = cache.hit(key) {
            return Ok(pinned);
        }
        let guard = cache.locks.lock(key).await;
        if let Some(pinned) = cache.hit(key) {
            return Ok(pinned);
        }
        match self.reuse_file(id, guard).await? {
            Ok(pinned) => Ok(pinned),
            Err(guard) => self.create_file(id, guard).await,
        }
    }

    /// Reuses a file of an earlier process if its content is intact. Otherwise returns the lock, for creating the file.
    async fn reuse_file(
        &self,
        id: BlobId,
        guard: KeyLockGuard<CacheKey>,
    ) -> Result<Result<Pinned, KeyLockGuard<CacheKey>>, Error> {
        let cache = Arc::clone(&self.shared.cache);
        let Some(found) = cache.unverified(CacheKey::Blob(id)) else { return Ok(Err(guard)) };
        blocking(move || {
            if is_intact(found.path(), id) && cache.mark_verified(&found).is_ok() {
                return Ok(Ok(found));
            }
            cache.discard(&found);
            Ok(Err(guard))
        })
        .await
    }

    /// Repeats a download from a peer that arrived damaged, since it may have been damaged on the way.
    async fn create_file(&self, id: BlobId, guard: KeyLockGuard<CacheKey>) -> Result<Pinned, Error> {
        let mut downloads = 1;
        let partial = loop {
            match self.unpack_to_scratch(id).await {
                Err(error @ Error::Damaged { .. })
                    if self.shared.storage.peer().is_some() && downloads < DAMAGED_DOWNLOADS_MAX =>
                {
                    tracing::warn!("download {downloads} of {id} from the control node failed: {error}");
                    downloads += 1;
                }
                partial => break partial?,
            }
        };
        let PartialFile { file, reservation } = partial;
        let cache = Arc::clone(&self.shared.cache);
        blocking(move || {
            // Held until the file is in the cache, so that no other call creates it.
            let _guard = guard;
            let path = cache.blob_path(id);
            tree::create_all(path.parent().unwrap_or(&path))?;
            let mode = Permissions::from_mode(FILE_MODE);
            file.file.set_permissions(mode).map_err(Error::io("make read-only", &file.path))?;
            file.rename(&path).map_err(Error::io("rename a file to", &path))?;
            cache.insert(CacheKey::Blob(id), path, reservation)
        })
        .await
    }

    /// Verified content in a scratch file.
    async fn unpack_to_scratch(&self, id: BlobId) -> Result<PartialFile, Error> {
        let reader = self.reader(id).await?;
        let bytes = footprint(reader.plain_bytes());
        let (cache, scratch) = (Arc::clone(&self.shared.cache), Arc::clone(&self.shared.scratch));
        let partial = blocking(move || {
            let reservation = cache.reserve(bytes)?;
            Ok(PartialFile { file: scratch.file()?, reservation })
        })
        .await?;
        let write = |partial: &mut PartialFile, piece: &[u8]| {
            partial.file.file.write_all(piece).map_err(Error::io("write", &partial.file.path))
        };
        reader.drain(partial, write).await
    }
}

/// Whether a file has this content and a read-only mode.
pub(crate) fn is_intact(path: &Path, id: BlobId) -> bool {
    let mode = fs::symlink_metadata(path).map(|found| found.permissions().mode() & 0o777);
    mode.is_ok_and(|mode| mode & !0o111 == FILE_MODE) && hash_file(path).is_ok_and(|(found, _)| found == id)
}

pub(crate) fn hash_file(path: &Path) -> Result<(BlobId, u64), Error> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE_BYTES_MAX];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((BlobId(*hasher.finalize().as_bytes()), hasher.count())),
            Ok(bytes) => {
                hasher.update(&piece[..bytes]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", path)(error)),
        }
    }
}
