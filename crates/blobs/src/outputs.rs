//! What a job has left in its directory, as blobs.

use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt};
use model::blob::BlobId;

use crate::blocking::blocking;
use crate::globs::Globs;
use crate::limits::SKIPPED_NAMED_MAX;
use crate::walk::{self, Kind};
use crate::{Blobs, Error, safe_relative};

/// How many files are on their way at the same time, so that their syncs ride together.
const FILES_AT_ONCE: usize = 8;

/// How much one job may leave.
#[derive(Debug, Clone, Copy)]
pub struct OutputLimits {
    pub files: usize,
    /// Of all files together.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// By path.
    pub files: Vec<Collected>,
    /// What was meant and could not be taken: the first of them by name, and how many there were.
    pub skipped: Vec<Skipped>,
    pub skipped_count: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    pub path: String,
    pub blob: BlobId,
    pub bytes: u64,
    pub executable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub path: String,
    pub why: String,
}

impl Outputs {
    fn skip(&mut self, path: &str, why: impl Into<String>) {
        self.skipped_count += 1;
        if self.skipped.len() < SKIPPED_NAMED_MAX {
            self.skipped.push(Skipped { path: path.to_owned(), why: why.into() });
        }
    }
}

#[derive(Debug, Clone)]
struct Candidate {
    path: String,
    executable: bool,
}

impl Blobs {
    /// Puts every plain file below `directory` that one of the globs matches. Links are not followed: they, and
    /// whatever else is no plain file, are skipped with a reason. More than the limits is an error; what had been put by
    /// then is collected as garbage later.
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
        let mut puts = puts.buffered(FILES_AT_ONCE);
        let mut bytes = 0;
        while let Some(put) = puts.try_next().await? {
            match put {
                Ok(file) => {
                    // A file may have grown since it was found.
                    bytes += file.bytes;
                    check_bytes(bytes, limits)?;
                    outputs.files.push(file);
                }
                Err(Skipped { path, why }) => outputs.skip(&path, why),
            }
        }
        Ok(outputs)
    }

    async fn put_output(
        &self,
        root: PathBuf,
        candidate: Candidate,
        limits: OutputLimits,
    ) -> Result<Result<Collected, Skipped>, Error> {
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
            Err(why) => Ok(Err(Skipped { path, why })),
            Ok(packed) => {
                let bytes = packed.plain_bytes;
                Ok(Ok(Collected { path, blob: self.keep(packed).await?, bytes, executable }))
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
            // What is meant may lie below, so this is said whatever the globs are.
            Kind::Closed(why) => outputs.skip(path, why),
            Kind::Directory => {}
            Kind::File { .. } | Kind::Link | Kind::Special(_) if !globs.matches(path) => {}
            Kind::Link => outputs.skip(path, "it is a link, and links are not followed"),
            Kind::Special(what) => outputs.skip(path, format!("it is {what}")),
            Kind::File { bytes, executable } => match safe_relative(path) {
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
