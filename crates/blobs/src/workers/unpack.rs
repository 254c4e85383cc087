//! A registered worker as a read-only directory.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use model::blob::{BlobId, WorkerId};

use super::manifest::{Entry, Manifest};
use crate::blocking::blocking;
use crate::cache::{FILE_MODE, Item, Pinned, footprint};
use crate::materialise::is_sound;
use crate::turns::Turn;
use crate::walk::{self, Kind};
use crate::{Blobs, Error, tree};

const DIRECTORY_MODE: u32 = 0o555;
const EXECUTABLE_MODE: u32 = 0o555;
/// While it is being unpacked.
const OPEN_DIRECTORY_MODE: u32 = 0o755;

/// How many files are unpacked at the same time.
const FILES_AT_ONCE: usize = 4;

/// An unpacked worker, which stays where it is while this lives.
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

/// A half-made directory; gone when dropped, unless it was put in its place.
struct Unpacking {
    path: PathBuf,
    kept: bool,
}

impl Unpacking {
    fn rename(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        if !self.kept {
            tree::remove_or_warn(&self.path);
        }
    }
}

impl Blobs {
    /// The worker's files in a directory of their own, read-only and verified, shared by everybody who asks. After a
    /// restart, whoever adopts running attempts asks for their workers before anything new is started: then the
    /// directory they run from is found, checked and kept.
    pub async fn materialise_worker(&self, id: WorkerId) -> Result<Bundle, Error> {
        let manifest = self.manifest(id).await?;
        let cache = &self.shared.cache;
        let item = Item::Worker(id);
        if let Some(pinned) = cache.hit(item) {
            return Ok(Bundle { pinned, manifest });
        }
        let turn = cache.turns.wait(item).await;
        if let Some(pinned) = cache.hit(item) {
            return Ok(Bundle { pinned, manifest });
        }
        let pinned = match self.look_through(id, &manifest, turn).await? {
            Ok(pinned) => pinned,
            Err(turn) => self.unpack(id, &manifest, turn).await?,
        };
        Ok(Bundle { pinned, manifest })
    }

    /// A directory of an earlier process is used if everything in it is right.
    async fn look_through(
        &self,
        id: WorkerId,
        manifest: &Arc<Manifest>,
        turn: Turn<Item>,
    ) -> Result<Result<Pinned, Turn<Item>>, Error> {
        let (cache, manifest) = (Arc::clone(&self.shared.cache), Arc::clone(manifest));
        let Some(found) = cache.found(Item::Worker(id)) else { return Ok(Err(turn)) };
        blocking(move || {
            if is_unpacked(found.path(), &manifest).unwrap_or(false) && cache.trust(&found).is_ok() {
                return Ok(Ok(found));
            }
            cache.discard(&found);
            Ok(Err(turn))
        })
        .await
    }

    async fn unpack(&self, id: WorkerId, manifest: &Arc<Manifest>, turn: Turn<Item>) -> Result<Pinned, Error> {
        let bytes = directory_footprint(manifest);
        let (cache, scratch) = (Arc::clone(&self.shared.cache), Arc::clone(&self.shared.scratch));
        let skeleton = Arc::clone(manifest);
        let (room, unpacking) = blocking(move || {
            let room = cache.reserve(bytes)?;
            let unpacking = Unpacking { path: scratch.name(), kept: false };
            make_skeleton(&unpacking.path, &skeleton)?;
            Ok((room, unpacking))
        })
        .await?;
        let files: Vec<(PathBuf, BlobId, bool)> = files_of(manifest, &unpacking.path).collect();
        let written = futures_util::stream::iter(files)
            .map(|(path, blob, executable)| self.unpack_file(path, blob, executable))
            .buffer_unordered(FILES_AT_ONCE);
        // All of them to their end, also when one has failed: nothing may appear after the directory was taken away.
        written.collect::<Vec<Result<(), Error>>>().await.into_iter().collect::<Result<(), Error>>()?;
        let (cache, scratch, manifest) =
            (Arc::clone(&self.shared.cache), Arc::clone(&self.shared.scratch), Arc::clone(manifest));
        blocking(move || {
            let _turn = turn;
            let path = cache.worker_path(id, bytes);
            // The deepest first; the top one last, since only a directory one may write to can be moved.
            for directory in directories_of(&manifest).iter().rev() {
                set_mode(&unpacking.path.join(directory), DIRECTORY_MODE)?;
            }
            if let Some(aside) = scratch.set_aside(&path) {
                tree::remove_or_warn(&aside);
            }
            tree::create_all(path.parent().unwrap_or(&path))?;
            unpacking.rename(&path).map_err(Error::io("put in place", &path))?;
            set_mode(&path, DIRECTORY_MODE)?;
            cache.insert(Item::Worker(id), path, room)
        })
        .await
    }

    async fn unpack_file(&self, path: PathBuf, blob: BlobId, executable: bool) -> Result<(), Error> {
        let reader = self.reader(blob).await?;
        let (file, path) = blocking(move || {
            let file = File::create_new(&path).map_err(Error::io("make the file", &path))?;
            Ok((file, path))
        })
        .await?;
        let write =
            |(file, path): &mut (File, PathBuf), piece: &[u8]| file.write_all(piece).map_err(Error::io("write", path));
        let (file, path) = reader.drain((file, path), write).await?;
        blocking(move || {
            let mode = if executable { EXECUTABLE_MODE } else { FILE_MODE };
            file.set_permissions(Permissions::from_mode(mode)).map_err(Error::io("make read-only", &path))
        })
        .await
    }
}

/// What the directory takes on a disk, about.
fn directory_footprint(manifest: &Manifest) -> u64 {
    let links = manifest.files.len() - manifest.blobs().count();
    let small = (links + directories_of(manifest).len() + 1) as u64;
    manifest.blobs().fold(footprint(0).saturating_mul(small), |sum, (_, bytes)| sum.saturating_add(footprint(bytes)))
}

/// All directories below the top one, parents before what is in them.
fn directories_of(manifest: &Manifest) -> BTreeSet<&str> {
    manifest.files.keys().flat_map(|path| path.match_indices('/').map(|(slash, _)| &path[..slash])).collect()
}

fn files_of(manifest: &Manifest, root: &Path) -> impl Iterator<Item = (PathBuf, BlobId, bool)> {
    manifest.files.iter().filter_map(move |(path, entry)| match entry {
        Entry::File { blob, executable, .. } => Some((root.join(path), *blob, *executable)),
        Entry::Link { .. } => None,
    })
}

/// Directories and links, without the files. The manifest was validated when it was registered, so every path lies
/// below `root` and none leads through a link.
fn make_skeleton(root: &Path, manifest: &Manifest) -> Result<(), Error> {
    for directory in std::iter::once("").chain(directories_of(manifest)) {
        let path = root.join(directory);
        fs::create_dir(&path).map_err(Error::io("make the directory", &path))?;
        set_mode(&path, OPEN_DIRECTORY_MODE)?;
    }
    for (path, entry) in &manifest.files {
        if let Entry::Link { target } = entry {
            let path = root.join(path);
            std::os::unix::fs::symlink(target, &path).map_err(Error::io("make the link", &path))?;
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::io("make read-only", path))
}

/// Whether a directory is exactly what its manifest says, down to the modes.
fn is_unpacked(root: &Path, manifest: &Manifest) -> Result<bool, Error> {
    // The last step of unpacking may not have happened.
    set_mode(root, DIRECTORY_MODE)?;
    let (mut sound, mut seen) = (true, 0);
    walk::walk(root, |path, kind| {
        let full = root.join(path);
        sound &= match (kind, manifest.files.get(path)) {
            (Kind::Directory, None) => has_mode(&full, DIRECTORY_MODE),
            (Kind::File { executable: found, .. }, Some(Entry::File { blob, executable, .. })) => {
                found == *executable && is_sound(&full, *blob)
            }
            (Kind::Link, Some(Entry::Link { target })) => {
                fs::read_link(&full).is_ok_and(|found| found == Path::new(target))
            }
            _ => false,
        };
        seen += usize::from(kind != Kind::Directory);
        Ok(())
    })?;
    Ok(sound && seen == manifest.files.len())
}

fn has_mode(path: &Path, mode: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.permissions().mode() & 0o777 == mode)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Few names, so that links meet directories and each other.
    fn entries() -> impl Strategy<Value = Vec<(String, Entry)>> {
        let path = "[ab](/[ab]){0,2}";
        let target = "([ab]|\\.\\.)(/([ab]|\\.\\.)){0,3}";
        let entry = prop_oneof![
            1 => Just(Entry::File { blob: BlobId::of(b""), bytes: 0, executable: false }),
            4 => target.prop_map(|target| Entry::Link { target }),
        ];
        proptest::collection::vec((path, entry), 1..16)
    }

    proptest! {
        #[test]
        fn no_link_of_a_bundle_that_was_accepted_leads_out_of_it(entries in entries()) {
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
            make_skeleton(&root, &manifest).unwrap();
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
        fn any_text_as_a_manifest_ends_without_a_panic(text in ".{0,200}", path in ".{0,20}", target in ".{0,20}") {
            let _ = serde_json::from_str::<Manifest>(&text);
            let entry = serde_json::json!({ "link": target });
            let text = serde_json::json!({ "name": text, "version": "1", "files": { path: entry } }).to_string();
            if let Ok(manifest) = serde_json::from_str::<Manifest>(&text) {
                let _ = manifest.validate(1);
            }
        }
    }
}
