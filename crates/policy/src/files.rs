//! Files of a set of rules: discovery, reading, and change detection.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use model::verdict::PolicyVersion;

use crate::error::LoadError;
use crate::limits;

/// A file with its path relative to the directory of the set, with `/` on every platform.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub name: String,
    pub text: String,
}

/// All files of a set, each kind in the order of names.
#[derive(Debug)]
pub(crate) struct Sources {
    pub rules: Vec<SourceFile>,
    pub data: Vec<SourceFile>,
    pub version: PolicyVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rules,
    Data,
    Cases,
}

/// Kind of a file by its name. Tests in Rego (for other tools) and all other files are ignored.
fn kind(name: &str) -> Option<Kind> {
    let (stem, extension) = name.rsplit_once('.')?;
    match (extension, stem.ends_with("_test")) {
        ("rego", false) => Some(Kind::Rules),
        ("json", false) => Some(Kind::Data),
        ("json" | "yaml" | "yml", true) => Some(Kind::Cases),
        _ => None,
    }
}

/// A file's directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileEntry {
    name: String,
    kind: Kind,
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// Names, sizes and modification times of the files. Unequal after any change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<FileEntry>);

impl Fingerprint {
    /// Covers rules and data, not test cases.
    pub fn of(directory: &Path) -> Result<Self, LoadError> {
        let mut entries = find(directory)?;
        entries.retain(|entry| entry.kind != Kind::Cases);
        Ok(Self(entries))
    }
}

/// Reads all rules and data in a directory.
pub(crate) fn read(directory: &Path) -> Result<Sources, LoadError> {
    let (mut rules, mut data, mut bytes, mut content) = (Vec::new(), Vec::new(), 0, Vec::new());
    for entry in find(directory)? {
        let into = match entry.kind {
            Kind::Rules => &mut rules,
            Kind::Data => &mut data,
            Kind::Cases => continue,
        };
        let file = read_file(&entry.path, entry.name)?;
        bytes += file.text.len();
        if bytes > limits::SET_BYTES_MAX {
            return Err(LoadError::SetTooLarge);
        }
        for part in [&file.name, &file.text] {
            content.extend_from_slice(&(part.len() as u64).to_le_bytes());
            content.extend_from_slice(part.as_bytes());
        }
        into.push(file);
    }
    if rules.is_empty() {
        return Err(LoadError::Empty { directory: directory.to_path_buf() });
    }
    if rules.len() + data.len() > limits::FILES_MAX {
        return Err(LoadError::TooManyFiles { directory: directory.to_path_buf() });
    }
    Ok(Sources { rules, data, version: PolicyVersion::of(&content) })
}

/// Reads all test cases in a directory.
pub(crate) fn read_cases(directory: &Path) -> Result<Vec<SourceFile>, LoadError> {
    let mut cases = find(directory)?;
    cases.retain(|entry| entry.kind == Kind::Cases);
    if cases.len() > limits::CASE_FILES_MAX {
        return Err(LoadError::TooManyFiles { directory: directory.to_path_buf() });
    }
    cases.into_iter().map(|entry| read_file(&entry.path, entry.name)).collect()
}

/// Reads one file, up to its size limit.
fn read_file(path: &Path, name: String) -> Result<SourceFile, LoadError> {
    let file = fs::File::open(path).map_err(LoadError::io("open", path))?;
    let mut bytes = Vec::new();
    let limit = limits::FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(LoadError::io("read", path))?;
    if bytes.len() > limits::FILE_BYTES_MAX {
        return Err(LoadError::FileTooLarge { file: name });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile { name, text }),
        Err(error) => Err(LoadError::NotText { file: name, byte: error.utf8_error().valid_up_to() }),
    }
}

/// Finds all rules, data and test cases, in the order of names.
fn find(directory: &Path) -> Result<Vec<FileEntry>, LoadError> {
    let mut search = Search { directory, entries: 0, files: Vec::new() };
    search.visit(directory, "", 0)?;
    search.files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(search.files)
}

struct Search<'a> {
    directory: &'a Path,
    entries: usize,
    files: Vec<FileEntry>,
}

impl Search<'_> {
    /// Follows symbolic links: container platforms mount configuration that way. The limits on depth and entries end
    /// the search in a cycle.
    fn visit(&mut self, path: &Path, prefix: &str, depth: usize) -> Result<(), LoadError> {
        if depth > limits::DIRECTORY_DEPTH_MAX {
            return Err(LoadError::TooDeep { path: path.to_path_buf() });
        }
        for entry in fs::read_dir(path).map_err(LoadError::io("read the directory", path))? {
            let path = entry.map_err(LoadError::io("read the directory", path))?.path();
            self.entries += 1;
            if self.entries > limits::DIRECTORY_ENTRIES_MAX {
                return Err(LoadError::TooManyEntries { directory: self.directory.to_path_buf() });
            }
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(LoadError::BadName { path });
            };
            // Hidden files belong to editors, version control and mounts.
            if name.starts_with('.') {
                continue;
            }
            let name = format!("{prefix}{name}");
            let metadata = fs::metadata(&path).map_err(LoadError::io("read the metadata of", &path))?;
            if metadata.is_dir() {
                self.visit(&path, &format!("{name}/"), depth + 1)?;
            } else if let Some(kind) = kind(&name) {
                let modified = metadata.modified().ok();
                self.files.push(FileEntry { name, kind, path, bytes: metadata.len(), modified });
            }
        }
        Ok(())
    }
}
