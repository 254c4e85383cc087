//! Blobs as plain, read-only files.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use model::blob::BlobId;

use crate::blocking::blocking;
use crate::cache::{FILE_MODE, Item, Pinned, Room, footprint};
use crate::limits::PIECE_BYTES_MAX;
use crate::scratch::TempFile;
use crate::turns::Turn;
use crate::{Blobs, Error, tree};

impl Blobs {
    /// A plain file with this content, read-only and verified. It stays while the guard lives. Of callers that ask at
    /// the same time one makes it, and the others wait.
    pub async fn materialise(&self, id: BlobId) -> Result<Pinned, Error> {
        let item = Item::Blob(id);
        let cache = &self.shared.cache;
        if let Some(pinned) = cache.hit(item) {
            return Ok(pinned);
        }
        let turn = cache.turns.wait(item).await;
        if let Some(pinned) = cache.hit(item) {
            return Ok(pinned);
        }
        match self.look_again(id, turn).await? {
            Ok(pinned) => Ok(pinned),
            Err(turn) => self.make_file(id, turn).await,
        }
    }

    /// A file of an earlier process is used if its content is right. Otherwise the turn comes back, to make it anew.
    async fn look_again(&self, id: BlobId, turn: Turn<Item>) -> Result<Result<Pinned, Turn<Item>>, Error> {
        let cache = Arc::clone(&self.shared.cache);
        let Some(found) = cache.found(Item::Blob(id)) else { return Ok(Err(turn)) };
        blocking(move || {
            if is_sound(found.path(), id) && cache.trust(&found).is_ok() {
                return Ok(Ok(found));
            }
            cache.discard(&found);
            Ok(Err(turn))
        })
        .await
    }

    async fn make_file(&self, id: BlobId, turn: Turn<Item>) -> Result<Pinned, Error> {
        struct Making {
            file: TempFile,
            room: Room,
        }
        let reader = self.reader(id).await?;
        let bytes = footprint(reader.plain_bytes());
        let (cache, scratch) = (Arc::clone(&self.shared.cache), Arc::clone(&self.shared.scratch));
        let making = blocking(move || {
            let room = cache.reserve(bytes)?;
            Ok(Making { file: scratch.file()?, room })
        })
        .await?;
        let write = |making: &mut Making, piece: &[u8]| {
            making.file.file.write_all(piece).map_err(Error::io("write", &making.file.path))
        };
        let Making { file, room } = reader.drain(making, write).await?;
        let cache = Arc::clone(&self.shared.cache);
        blocking(move || {
            // Nobody else can make the same file until it is in its place.
            let _turn = turn;
            let path = cache.blob_path(id);
            tree::create_all(path.parent().unwrap_or(&path))?;
            let mode = Permissions::from_mode(FILE_MODE);
            file.file.set_permissions(mode).map_err(Error::io("make read-only", &file.path))?;
            file.rename(&path).map_err(Error::io("put in place", &path))?;
            cache.insert(Item::Blob(id), path, room)
        })
        .await
    }
}

/// Whether a file has this content, and a mode that lets nobody change it.
pub(crate) fn is_sound(path: &Path, id: BlobId) -> bool {
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
