//! Collection of a job's output files as blobs.

use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt};
use model::blob::BlobId;

use crate::blocking::blocking;
use crate::globs::Globs;
use crate::limits::SKIPPED_NAMED_MAX;
use crate::walk::{self, FileKind};
use crate::{Blobs, Error, safe_relative};

/// Files stored concurrently, so that their syncs are batched.
const FILES_CONCURRENT_MAX: usize = 8;

/// Output limits of one job.
#[derive(Debug, Clone, Copy)]
pub struct OutputLimits {
    pub files: usize,
    /// Total of all files.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// Ordered by path.
    pub files: Vec<OutputFile>,
    /// Matching files that could not be stored, up to [`SKIPPED_NAMED_MAX`].
    pub skipped: Vec<SkippedFile>,
    /// Number of all skipped files.
    pub skipped_count: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    pub path: String,
    pub blob: BlobId,
    pub bytes: u64,
    pub executable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    pub path: String,
    pub why: String,
}

impl Outputs {
    fn skip(&mut self, path: &str, why: impl Into<String>) {
        self.skipped_count += 1;
        if self.skipped.len() < SKIPPED_NAMED_MAX {
            self.skipped.push(SkippedFile { path: path.to_owned(), why: why.into() });
        }
    }
}

#[derive(Debug, Clone)]
struct Candidate {
    path: String,
    executable: bool,
}

impl Blobs {
    /// Stores every regular file below `directory` that matches a glob. Links are not followed: they and all other
    /// non-regular files are skipped with a reason. Exceeding the limits is an error; blobs stored by then are left to
    /// garbage collection.
    pub async fn collect_outputs(
        &self,
        directory: &Path,
        globs: &Globs,
        limits: OutputLimits,
    ) -> Result<Outputs, Error> {
        let (root, globs) = (directory.to_path_buf(), globs.clone());
        let (candidates, mut outputs) = blocking(move || find(&root, &globs, limits)).await?;
        let puts = futures_util::stream::iter(candidates).map(|candidate| {
            let root = directory.to_path_buf();
            async move { self.put_output(root, candidate, limits).await }
        });
        let mut puts = puts.buffered(FILES_CONCURRENT_MAX);
        let mut bytes = 0;
        while let Some(put) = puts.try_next().await? {
            match put {
                Ok(file) => {
                    // The file may have grown since the walk.
                    bytes += file.bytes;
                    check_bytes(bytes, limits)?;
                    outputs.files.push(file);
                }
                Err(SkippedFile { path, why }) => outputs.skip(&path, why),
            }
        }
        Ok(outputs)
    }

    async fn put_output(
        &self,
        root: PathBuf,
        candidate: Candidate,
        limits: OutputLimits,
    ) -> Result<Result<OutputFile, SkippedFile>, Error> {
        let Candidate { path, executable } = candidate;
        let this = self.clone();
        let name = path.clone();
        let packed = blocking(move || {
            let file = match walk::open_file(&root, &name) {
                Ok(file) => file,
                Err(error) => return Ok(Err(error.to_string())),
            };
            match this.pack_file(file, &root.join(&name), limits.bytes) {
                Err(Error::TooLarge { bytes, .. }) => Err(too_large(bytes, limits)),
                packed => packed.map(Ok),
            }
        })
        .await?;
        match packed {
            Err(why) => Ok(Err(SkippedFile { path, why })),
            Ok(packed) => {
                let bytes = packed.plain_bytes;
                Ok(Ok(OutputFile { path, blob: self.store(packed).await?, bytes, executable }))
            }
        }
    }
}

fn find(root: &Path, globs: &Globs, limits: OutputLimits) -> Result<(Vec<Candidate>, Outputs), Error> {
    let mut outputs = Outputs { files: Vec::new(), skipped: Vec::new(), skipped_count: 0 };
    let mut candidates = Vec::new();
    let mut total = 0;
    walk::walk(root, |path, kind| {
        match kind {
            // Matching files may be below, so this is reported whatever the globs are.
            FileKind::Unreadable(why) => outputs.skip(path, why),
            FileKind::Directory => {}
            FileKind::File { .. } | FileKind::Link | FileKind::Special(_) if !globs.matches(path) => {}
            FileKind::Link => outputs.skip(path, "it is a symbolic link; links are not followed"),
            FileKind::Special(what) => outputs.skip(path, format!("it is {what}")),
            FileKind::File { bytes, executable } => match safe_relative(path) {
                Ok(_) => {
                    total += bytes;
                    check_bytes(total, limits)?;
                    candidates.push(Candidate { path: path.to_owned(), executable });
                    if candidates.len() > limits.files {
                        return Err(Error::TooMany { what: "output files", limit: limits.files });
                    }
                }
                Err(error) => outputs.skip(path, error.to_string()),
            },
        }
        Ok(())
    })?;
    candidates.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok((candidates, outputs))
}

fn check_bytes(bytes: u64, limits: OutputLimits) -> Result<(), Error> {
    if bytes > limits.bytes { Err(too_large(bytes, limits)) } else { Ok(()) }
}

fn too_large(bytes: u64, limits: OutputLimits) -> Error {
    Error::TooLarge { what: "the output".to_owned(), bytes, limit: limits.bytes }
}
