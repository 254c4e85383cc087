//! Scan of a client's directory into a manifest and a list of files to upload.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::blob::BlobId;
use serde::Deserialize;

use super::manifest::{Function, Manifest, ManifestEntry};
use crate::Error;
use crate::limits::BUNDLE_FILES_MAX;
use crate::materialise::hash_file;
use crate::walk::{self, FileKind};

/// Description of the worker, at the root of its directory. Not part of the bundle.
pub const DESCRIPTION: &str = "worker.json";

const VERSION_DEFAULT: &str = "0";

/// Result of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedDirectory {
    pub manifest: Manifest,
    /// One file per distinct content.
    pub files: Vec<LocalFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    pub path: PathBuf,
    pub blob: BlobId,
    pub bytes: u64,
}

/// Content of `worker.json`. All fields are optional; a directory without a description is a bundle without functions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: Option<String>,
    version: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    functions: Vec<DescribedFunction>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedFunction {
    name: String,
    /// Defaults to the worker's version.
    version: Option<String>,
    command: Vec<String>,
}

/// Builds the manifest of a directory and hashes every file. Blocks. Devices, pipes, sockets and links that point
/// outside are errors, since a silently omitted file would be missing later.
pub fn scan_directory(directory: &Path) -> Result<ScannedDirectory, Error> {
    // The directory itself may be a link, as the user chose it.
    let directory = &fs::canonicalize(directory).map_err(Error::io("open the directory", directory))?;
    let description = read_description(directory)?;
    let version = description.version.unwrap_or_else(|| VERSION_DEFAULT.to_owned());
    let functions = description.functions.into_iter().map(|function| Function {
        name: function.name,
        version: function.version.unwrap_or_else(|| version.clone()),
        command: function.command,
    });
    let mut manifest = Manifest {
        name: description.name.unwrap_or_else(|| name_of(directory)),
        functions: functions.collect(),
        version,
        files: BTreeMap::new(),
        env: description.env,
    };
    let mut files = BTreeMap::new();
    walk::walk(directory, |path, kind| {
        let entry = match kind {
            FileKind::Directory => return Ok(()),
            FileKind::File { .. } if path == DESCRIPTION => return Ok(()),
            FileKind::File { executable, .. } => {
                let full = directory.join(path);
                let (blob, bytes) = hash_file(&full)?;
                files.entry(blob).or_insert(LocalFile { path: full, blob, bytes });
                ManifestEntry::File { blob, bytes, executable }
            }
            FileKind::Link => ManifestEntry::Link { target: read_link(directory, path)? },
            FileKind::Special(what) => {
                return Err(Error::bad_path(path, format!("it is {what}; a bundle contains only files and links")));
            }
            FileKind::Unreadable(why) => return Err(Error::bad_path(path, why)),
        };
        manifest.files.insert(path.to_owned(), entry);
        if manifest.files.len() > BUNDLE_FILES_MAX {
            return Err(Error::TooMany { what: "files in a bundle", limit: BUNDLE_FILES_MAX });
        }
        Ok(())
    })?;
    // The server enforces the size limit.
    manifest.validate(u64::MAX)?;
    Ok(ScannedDirectory { manifest, files: files.into_values().collect() })
}

fn read_description(directory: &Path) -> Result<Description, Error> {
    let path = directory.join(DESCRIPTION);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Description::default()),
        Err(error) => return Err(Error::io("read", &path)(error)),
    };
    serde_json::from_slice(&text).map_err(|error| Error::bad_manifest(format!("`{}`: {error}", path.display())))
}

fn name_of(directory: &Path) -> String {
    directory.file_name().map_or_else(|| "worker".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn read_link(directory: &Path, path: &str) -> Result<String, Error> {
    let full = directory.join(path);
    let target = fs::read_link(&full).map_err(Error::io("read the link", &full))?;
    match target.into_os_string().into_string() {
        // Normalises `./x` to `x`.
        Ok(target) => Ok(target.strip_prefix("./").unwrap_or(&target).to_owned()),
        Err(_) => Err(Error::bad_path(path, "it is a link to a name that is not UTF-8")),
    }
}
