//! A directory on the client's side, as a manifest and a list of what to upload.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::blob::BlobId;
use serde::Deserialize;

use super::manifest::{Entry, Function, Manifest};
use crate::Error;
use crate::limits::BUNDLE_FILES_MAX;
use crate::materialise::hash_file;
use crate::walk::{self, Kind};

/// The file at the top of a directory that says what the worker is. It is not part of the bundle.
pub const DESCRIPTION: &str = "worker.json";

const VERSION_DEFAULT: &str = "0";

/// A directory as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    pub manifest: Manifest,
    /// One for each different content.
    pub files: Vec<LocalFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    pub path: PathBuf,
    pub blob: BlobId,
    pub bytes: u64,
}

/// All of it may be left out: a directory without a description is a bundle without functions.
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
    /// That of the worker if left out.
    version: Option<String>,
    command: Vec<String>,
}

/// Makes a manifest of a directory, hashing every file. Blocks. Devices, pipes, sockets and links that point outside
/// are refused: what is left out silently would be missed later.
pub fn scan_directory(directory: &Path) -> Result<Scanned, Error> {
    // It may be a link itself, which is fine: its user has chosen it.
    let directory = &fs::canonicalize(directory).map_err(Error::io("look at", directory))?;
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
            Kind::Directory => return Ok(()),
            Kind::File { .. } if path == DESCRIPTION => return Ok(()),
            Kind::File { executable, .. } => {
                let full = directory.join(path);
                let (blob, bytes) = hash_file(&full)?;
                files.entry(blob).or_insert(LocalFile { path: full, blob, bytes });
                Entry::File { blob, bytes, executable }
            }
            Kind::Link => Entry::Link { target: read_link(directory, path)? },
            Kind::Special(what) => return Err(Error::bad_path(path, format!("it is {what}; a bundle has files only"))),
            Kind::Closed(why) => return Err(Error::bad_path(path, why)),
        };
        manifest.files.insert(path.to_owned(), entry);
        if manifest.files.len() > BUNDLE_FILES_MAX {
            return Err(Error::TooMany { what: "files in a bundle", limit: BUNDLE_FILES_MAX });
        }
        Ok(())
    })?;
    // How large it may be is for the server to say.
    manifest.validate(u64::MAX)?;
    Ok(Scanned { manifest, files: files.into_values().collect() })
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
        // `./x` is `x`.
        Ok(target) => Ok(target.strip_prefix("./").unwrap_or(&target).to_owned()),
        Err(_) => Err(Error::bad_path(path, "it is a link to a name that is not UTF-8")),
    }
}
