//! Fixture: a store in a temporary directory, and helpers.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use blobs::{Blobs, ContentStream, Error, Location, Options};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use model::blob::BlobId;
use tempfile::TempDir;

pub struct Fixture {
    pub directory: TempDir,
    pub options: Options,
}

impl Fixture {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = options_at(directory.path());
        Self { directory, options }
    }

    pub async fn open(&self) -> Blobs {
        Blobs::open(self.options.clone()).await.unwrap()
    }

    /// Path of a stored blob.
    pub fn stored(&self, id: BlobId) -> PathBuf {
        stored_at(self.directory.path(), id)
    }

    pub fn work(&self) -> &Path {
        &self.options.work
    }

    /// All files that are neither blobs nor manifests.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let root = self.directory.path();
        let expected = [root.join("store/blobs"), root.join("store/workers")];
        let is_expected = |path: &PathBuf| expected.iter().any(|directory| path.starts_with(directory));
        files_below(root).into_iter().filter(|path| !is_expected(path)).collect()
    }
}

pub fn options_at(directory: &Path) -> Options {
    Options::new(Location::Directory(directory.join("store")), directory.join("work"))
}

pub fn stored_at(directory: &Path, id: BlobId) -> PathBuf {
    let hex = id.hex();
    directory.join("store/blobs").join(&hex[..2]).join(&hex[2..4]).join(hex)
}

pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else { return files };
    for entry in entries {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

/// Incompressible bytes, determined by the seed.
pub fn noise(bytes: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    content.truncate(bytes);
    content.into()
}

pub async fn read_all(stream: ContentStream) -> Result<Vec<u8>, Error> {
    stream
        .try_fold(Vec::new(), async |mut all, piece| {
            all.extend_from_slice(&piece);
            Ok(all)
        })
        .await
}

pub async fn content(blobs: &Blobs, id: BlobId) -> Result<Vec<u8>, Error> {
    read_all(blobs.read(id).await?).await
}

pub fn pieces(content: &Bytes, bytes: usize) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let pieces: Vec<_> = content.chunks(bytes).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    futures_util::stream::iter(pieces)
}

/// A time after the grace period of all earlier operations.
pub fn much_later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(2 * 24 * 3600)
}

/// Reports a skipped test on stderr and in the file `OUTLAST_SKIP_LOG`.
pub fn skip(why: &str) {
    use std::io::Write;
    eprintln!("skipped: {why}");
    if let Some(log) = std::env::var_os("OUTLAST_SKIP_LOG") {
        let mut log = fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "skipped: {why}").unwrap();
    }
}
