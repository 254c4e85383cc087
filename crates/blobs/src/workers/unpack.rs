//! Unpacking of a registered worker to a read-only directory in the cache.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use model::blob::{BlobId, WorkerId};

use super::manifest::{Manifest, ManifestEntry};
use crate::blocking::blocking;
use crate::cache::{CacheKey, FILE_MODE, Pinned, footprint};
use crate::key_locks::KeyLockGuard;
use crate::links::copy_with_mode;
use crate::materialise::is_intact;
use crate::walk::{self, FileKind};
use crate::{Blobs, Error, tree};

const DIRECTORY_MODE: u32 = 0o555;
const EXECUTABLE_MODE: u32 = 0o555;
/// Mode while unpacking.
const PARTIAL_DIRECTORY_MODE: u32 = 0o755;

/// Files unpacked concurrently.
const FILES_CONCURRENT_MAX: usize = 4;
/// Files fetched from a peer concurrently: small files take a round trip each.
const FILES_FETCHED_CONCURRENT_MAX: usize = 16;

/// Unpacked worker, pinned in the cache.
#[derive(Debug)]
pub struct Bundle {
    pinned: Pinned,
    manifest: Arc<Manifest>,
}

impl Bundle {
    pub fn path(&self) -> &Path {
        self.pinned.path()
    }

    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }
}

/// Directory that is removed on drop unless it was renamed.
struct PartialDirectory {
    path: PathBuf,
    renamed: bool,
}

impl PartialDirectory {
    fn rename(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for PartialDirectory {
    fn drop(&mut self) {
        if !self.renamed {
            tree::remove_or_warn(&self.path);
        }
    }
}

impl Blobs {
    /// Returns a verified, read-only directory with the worker's files, shared by all callers. After a restart the
    /// runner calls this for adopted attempts before it starts new ones, so that the directories they run from are
    /// verified and pinned.
    pub async fn materialise_worker(&self, id: WorkerId) -> Result<Bundle, Error> {
        let manifest = self.manifest(id).await?;
        let cache = &self.shared.cache;
        let key = CacheKey::Worker(id);
        if let Some(pinned) = cache.hit(key) {
            return Ok(Bundle { pinned, manifest });
        }
        let guard = cache.locks.lock(key).await;
        if let Some(pinned) = cache.hit(key) {
            return Ok(Bundle { pinned, manifest });
        }
        let pinned = match self.reuse_directory(id, &manifest, guard).await? {
            Ok(pinned) => pinned,
            Err(guard) => self.unpack(id, &manifest, guard).await?,
        };
        Ok(Bundle { pinned, manifest })
    }

    /// Reuses a directory of an earlier process if it is intact. Otherwise returns the lock, for unpacking.
    async fn reuse_directory(
        &self,
        id: WorkerId,
        manifest: &Arc<Manifest>,
        guard: KeyLockGuard<CacheKey>,
    ) -> Result<Result<Pinned, KeyLockGuard<CacheKey>>, Error> {
        let (cache, manifest) = (Arc::clone(&self.shared.cache), Arc::clone(manifest));
        let Some(found) = cache.unverified(CacheKey::Worker(id)) else { return Ok(Err(guard)) };
        blocking(move || {
            if matches_manifest(found.path(), &manifest).unwrap_or(false) && cache.mark_verified(&found).is_ok() {
                return Ok(Ok(found));
            }
            cache.discard(&found);
            Ok(Err(guard))
        })
        .await
    }

    async fn unpack(
        &self,
        id: WorkerId,
        manifest: &Arc<Manifest>,
        guard: KeyLockGuard<CacheKey>,
    ) -> Result<Pinned, Error> {
        let bytes = directory_footprint(manifest);
        let (cache, scratch) = (Arc::clone(&self.shared.cache), Arc::clone(&self.shared.scratch));
        let skeleton = Arc::clone(manifest);
        let (reservation, partial) = blocking(move || {
            let reservation = cache.reserve(bytes)?;
            let partial = PartialDirectory { path: scratch.new_path(), renamed: false };
            create_skeleton(&partial.path, &skeleton)?;
            Ok((reservation, partial))
        })
        .await?;
        let files: Vec<(PathBuf, BlobId, bool)> = files_of(manifest, &partial.path).collect();
        let written = futures_util::stream::iter(files)
            .map(|(path, blob, executable)| self.unpack_file(path, blob, executable))
            .buffer_unordered(match self.shared.storage.peer() {
                None => FILES_CONCURRENT_MAX,
                Some(_) => FILES_FETCHED_CONCURRENT_MAX,
            });
        // Awaits all files even if one fails: no file may be created after the directory is removed.
        written.collect::<Vec<Result<(), Error>>>().await.into_iter().collect::<Result<(), Error>>()?;
        let (cache, scratch, manifest) =
            (Arc::clone(&self.shared.cache), Arc::clone(&self.shared.scratch), Arc::clone(manifest));
        blocking(move || {
            let _guard = guard;
            let path = cache.worker_path(id, bytes);
            // Deepest first. The root stays writable until after the rename, which needs write permission.
            for directory in directories_of(&manifest).iter().rev() {
                set_mode(&partial.path.join(directory), DIRECTORY_MODE)?;
            }
            if let Some(removed) = scratch.move_to_scratch(&path) {
                tree::remove_or_warn(&removed);
            }
            tree::create_all(path.parent().unwrap_or(&path))?;
            partial.rename(&path).map_err(Error::io("rename a directory to", &path))?;
            set_mode(&path, DIRECTORY_MODE)?;
            cache.insert(CacheKey::Worker(id), path, reservation)
        })
        .await
    }

    async fn unpack_file(&self, path: PathBuf, blob: BlobId, executable: bool) -> Result<(), Error> {
        let mode = if executable { EXECUTABLE_MODE } else { FILE_MODE };
        // Content of a peer goes through the cache of files, so that bundles with common files fetch them once.
        if self.shared.storage.peer().is_some() {
            match self.materialise(blob).await {
                Ok(pinned) => return copy_with_mode(&pinned, &path, mode).await,
                Err(Error::CacheFull { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let reader = self.reader(blob).await?;
        let (file, path) = blocking(move || {
            let file = File::create_new(&path).map_err(Error::io("create the file", &path))?;
            Ok((file, path))
        })
        .await?;
        let write =
            |(file, path): &mut (File, PathBuf), piece: &[u8]| file.write_all(piece).map_err(Error::io("write", path));
        let (file, path) = reader.drain((file, path), write).await?;
        blocking(move || file.set_permissions(Permissions::from_mode(mode)).map_err(Error::io("make read-only", &path)))
            .await
    }
}

/// Estimated disk usage of the directory.
fn directory_footprint(manifest: &Manifest) -> u64 {
    let links = manifest.files.len() - manifest.blobs().count();
    let small = (links + directories_of(manifest).len() + 1) as u64;
    manifest.blobs().fold(footprint(0).saturating_mul(small), |sum, (_, bytes)| sum.saturating_add(footprint(bytes)))
}

/// All directories below the root, parents first.
fn directories_of(manifest: &Manifest) -> BTreeSet<&str> {
    manifest.files.keys().flat_map(|path| path.match_indices('/').map(|(slash, _)| &path[..slash])).collect()
}

fn files_of(manifest: &Manifest, root: &Path) -> impl Iterator<Item = (PathBuf, BlobId, bool)> {
    manifest.files.iter().filter_map(move |(path, entry)| match entry {
        ManifestEntry::File { blob, executable, .. } => Some((root.join(path), *blob, *executable)),
        ManifestEntry::Link { .. } => None,
    })
}

/// Creates directories and links, without the files. The manifest was validated at registration, so every path is below
/// `root` and none leads through a link.
fn create_skeleton(root: &Path, manifest: &Manifest) -> Result<(), Error> {
    for directory in std::iter::once("").chain(directories_of(manifest)) {
        let path = root.join(directory);
        fs::create_dir(&path).map_err(Error::io("create the directory", &path))?;
        set_mode(&path, PARTIAL_DIRECTORY_MODE)?;
    }
    for (path, entry) in &manifest.files {
        if let ManifestEntry::Link { target } = entry {
            let path = root.join(path);
            std::os::unix::fs::symlink(target, &path).map_err(Error::io("create the link", &path))?;
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::io("set the mode of", path))
}

/// Whether a directory matches its manifest exactly, including modes.
fn matches_manifest(root: &Path, manifest: &Manifest) -> Result<bool, Error> {
    // Unpacking may have been interrupted before its last step.
    set_mode(root, DIRECTORY_MODE)?;
    let (mut intact, mut seen) = (true, 0);
    walk::walk(root, |path, kind| {
        let full = root.join(path);
        intact &= match (kind, manifest.files.get(path)) {
            (FileKind::Directory, None) => has_mode(&full, DIRECTORY_MODE),
            (FileKind::File { executable: found, .. }, Some(ManifestEntry::File { blob, executable, .. })) => {
                found == *executable && is_intact(&full, *blob)
            }
            (FileKind::Link, Some(ManifestEntry::Link { target })) => {
                fs::read_link(&full).is_ok_and(|found| found == Path::new(target))
            }
            _ => false,
        };
        seen += usize::from(kind != FileKind::Directory);
        Ok(())
    })?;
    Ok(intact && seen == manifest.files.len())
}

fn has_mode(path: &Path, mode: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.permissions().mode() & 0o777 == mode)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Few distinct names, so that links collide with directories and each other.
    fn entries() -> impl Strategy<Value = Vec<(String, ManifestEntry)>> {
        let path = "[ab](/[ab]){0,2}";
        let target = "([ab]|\\.\\.)(/([ab]|\\.\\.)){0,3}";
        let entry = prop_oneof![
            1 => Just(ManifestEntry::File { blob: BlobId::of(b""), bytes: 0, executable: false }),
            4 => target.prop_map(|target| ManifestEntry::Link { target }),
        ];
        proptest::collection::vec((path, entry), 1..16)
    }

    proptest! {
        #[test]
        fn no_link_of_a_valid_bundle_leads_out_of_it(entries in entries()) {
            let mut manifest = Manifest {
                name: "n".to_owned(),
                version: "1".to_owned(),
                files: BTreeMap::new(),
                env: BTreeMap::new(),
                functions: Vec::new(),
            };
            for (path, entry) in entries {
                let before = manifest.files.clone();
                manifest.files.insert(path, entry);
                if manifest.validate(1).is_err() {
                    manifest.files = before;
                }
            }
            let parent = tempfile::tempdir().unwrap();
            let root = fs::canonicalize(parent.path()).unwrap().join("bundle");
            create_skeleton(&root, &manifest).unwrap();
            for (path, _, _) in files_of(&manifest, &root) {
                fs::write(path, "").unwrap();
            }
            for path in manifest.files.keys() {
                if let Ok(full) = fs::canonicalize(root.join(path)) {
                    prop_assert!(full.starts_with(&root), "{path} leads to {}", full.display());
                }
            }
        }

        #[test]
        fn no_manifest_text_causes_a_panic(text in ".{0,200}", path in ".{0,20}", target in ".{0,20}") {
            let _ = serde_json::from_str::<Manifest>(&text);
            let entry = serde_json::json!({ "link": target });
            let text = serde_json::json!({ "name": text, "version": "1", "files": { path: entry } }).to_string();
            if let Ok(manifest) = serde_json::from_str::<Manifest>(&text) {
                let _ = manifest.validate(1);
            }
        }
    }
}
