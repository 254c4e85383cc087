//! `--input` and `--wasm`: uploads files as blobs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use client::Client;
use model::blob::BlobId;
use model::limits::INPUTS_MAX;

use crate::exit::{NotFound, Usage};
use crate::{blobs, upload};

/// A blob id, or a file to upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Blob(BlobId),
    Path(PathBuf),
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("expected a path or a blob:… id".to_owned()),
            blob if blob.starts_with("blob:") => {
                blob.parse().map(Self::Blob).map_err(|error: model::blob::BadName| error.to_string())
            }
            path => Ok(Self::Path(path.into())),
        }
    }
}

/// Blobs of all inputs by name. Uploads the ones the server lacks.
pub async fn inputs(given: &[(String, Source)], client: &Client) -> Result<BTreeMap<String, BlobId>> {
    let mut inputs = BTreeMap::new();
    let mut contents = Vec::new();
    for (name, source) in given {
        match source {
            Source::Blob(id) => insert(&mut inputs, name.clone(), *id)?,
            Source::Path(path) => {
                for (name, path) in files(name, path)? {
                    let content = blobs::hash(&path)?;
                    insert(&mut inputs, name, content.id)?;
                    contents.push(content);
                }
            }
        }
    }
    if !contents.is_empty() {
        upload::upload_missing(client, contents).await?;
    }
    Ok(inputs)
}

fn insert(inputs: &mut BTreeMap<String, BlobId>, name: String, id: BlobId) -> Result<()> {
    if inputs.len() == INPUTS_MAX {
        return Err(Usage(format!("--input: a job can have at most {INPUTS_MAX} files; use an archive")).into());
    }
    match inputs.insert(name.clone(), id) {
        None => Ok(()),
        Some(_) => Err(Usage(format!("--input: duplicate input {name}")).into()),
    }
}

/// Blob of a component. Uploads it if the server lacks it.
pub async fn component(source: &Source, client: &Client) -> Result<BlobId> {
    match source {
        Source::Blob(id) => Ok(*id),
        Source::Path(path) => {
            let content = blobs::hash(path)?;
            let id = content.id;
            upload::upload_missing(client, vec![content]).await?;
            Ok(id)
        }
    }
}

/// The file under `name`, or all files of a directory under `name/…`.
fn files(name: &str, path: &Path) -> Result<Vec<(String, PathBuf)>> {
    let found = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            anyhow::Error::from(NotFound(format!("--input: no such file: {}", path.display())))
        }
        _ => anyhow::Error::from(error).context(format!("cannot read {}", path.display())),
    })?;
    let mut files = Vec::new();
    if found.is_dir() {
        collect_directory(name.trim_end_matches('/'), path, &mut files)?;
    } else {
        files.push((name.to_owned(), path.to_owned()));
    }
    Ok(files)
}

fn collect_directory(name: &str, directory: &Path, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    let unreadable = || format!("cannot list {}", directory.display());
    for entry in fs::read_dir(directory).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        let path = entry.path();
        let reject = |why: &str| Err(Usage(format!("--input: {} {why}", path.display())).into());
        let own = match entry.file_name().into_string() {
            Ok(own) => format!("{name}/{own}"),
            Err(_) => return reject("has a name that is not UTF-8"),
        };
        let kind = entry.file_type().with_context(unreadable)?;
        if kind.is_dir() {
            collect_directory(&own, &path, files)?;
        } else if path.is_file() {
            files.push((own, path.clone()));
        } else {
            // A link to a directory could form a cycle; a pipe may never end.
            return reject("is neither a file nor a directory");
        }
        if files.len() > INPUTS_MAX {
            return reject(&format!("exceeds the limit of {INPUTS_MAX} input files; use an archive"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_blob_or_a_path() {
        let id = BlobId::of(b"x");
        assert_eq!(id.to_string().parse(), Ok(Source::Blob(id)));
        assert_eq!("./a.txt".parse(), Ok(Source::Path("./a.txt".into())));
        assert!("blob:12".parse::<Source>().unwrap_err().contains("blob:<64"));
        assert!("".parse::<Source>().is_err());
    }

    #[test]
    fn a_directory_stands_for_all_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/c"), "").unwrap();
        fs::write(root.join("top"), "").unwrap();
        let mut names: Vec<String> = files("data/", root).unwrap().into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, ["data/a/b/c", "data/top"]);
        assert_eq!(files("x", &root.join("top")).unwrap(), [("x".to_owned(), root.join("top"))]);
        assert!(files("x", &root.join("none")).unwrap_err().is::<NotFound>());
        std::os::unix::fs::symlink(".", root.join("circle")).unwrap();
        assert!(files("x", root).unwrap_err().is::<Usage>());
    }
}
