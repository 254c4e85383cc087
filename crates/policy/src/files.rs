//! The files of a set of rules: which belong to it, what is in them, and whether they have changed since.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use model::verdict::PolicyVersion;

use crate::error::LoadError;
use crate::limits;

/// A file with its path below the directory of the set, with `/` on every platform.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub name: String,
    pub text: String,
}

/// Everything a set is made of, each kind in the order of its names.
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

/// What a file is, by its name. Tests in Rego are for other tools, and files of no kind are nobody's business.
fn kind(name: &str) -> Option<Kind> {
    let (stem, extension) = name.rsplit_once('.')?;
    match (extension, stem.ends_with("_test")) {
        ("rego", false) => Some(Kind::Rules),
        ("json", false) => Some(Kind::Data),
        ("json" | "yaml" | "yml", true) => Some(Kind::Cases),
        _ => None,
    }
}

/// A file that was found, not yet opened.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    name: String,
    kind: Kind,
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// What can be seen of the files without opening them. Equal as long as nobody has touched them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<Found>);

impl Fingerprint {
    /// Of the rules and data in a directory; files with cases do not count.
    pub fn of(directory: &Path) -> Result<Self, LoadError> {
        let mut found = walk(directory)?;
        found.retain(|file| file.kind != Kind::Cases);
        Ok(Self(found))
    }
}

/// Reads all rules and data in a directory.
pub(crate) fn read(directory: &Path) -> Result<Sources, LoadError> {
    let (mut rules, mut data, mut bytes, mut content) = (Vec::new(), Vec::new(), 0, Vec::new());
    for found in walk(directory)? {
        let into = match found.kind {
            Kind::Rules => &mut rules,
            Kind::Data => &mut data,
            Kind::Cases => continue,
        };
        let file = read_file(&found.path, found.name)?;
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

/// Reads all files with cases in a directory.
pub(crate) fn read_cases(directory: &Path) -> Result<Vec<SourceFile>, LoadError> {
    let mut cases = walk(directory)?;
    cases.retain(|file| file.kind == Kind::Cases);
    if cases.len() > limits::CASE_FILES_MAX {
        return Err(LoadError::TooManyFiles { directory: directory.to_path_buf() });
    }
    cases.into_iter().map(|found| read_file(&found.path, found.name)).collect()
}

/// Reads one file, no more of it than it may have.
fn read_file(path: &Path, name: String) -> Result<SourceFile, LoadError> {
    let file = fs::File::open(path).map_err(LoadError::io("open", path))?;
    let mut bytes = Vec::new();
    let most = limits::FILE_BYTES_MAX as u64 + 1;
    file.take(most).read_to_end(&mut bytes).map_err(LoadError::io("read", path))?;
    if bytes.len() > limits::FILE_BYTES_MAX {
        return Err(LoadError::FileTooLarge { file: name });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(SourceFile { name, text }),
        Err(error) => Err(LoadError::NotText { file: name, byte: error.utf8_error().valid_up_to() }),
    }
}

/// Finds all files of some kind, in the order of their names.
fn walk(directory: &Path) -> Result<Vec<Found>, LoadError> {
    let mut search = Search { directory, entries: 0, found: Vec::new() };
    search.enter(directory, "", 0)?;
    search.found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(search.found)
}

struct Search<'a> {
    directory: &'a Path,
    entries: usize,
    found: Vec<Found>,
}

impl Search<'_> {
    /// Links are followed, for that is how containers get their configuration. The depth and the number of entries end
    /// the search where they lead in a circle.
    fn enter(&mut self, path: &Path, prefix: &str, depth: usize) -> Result<(), LoadError> {
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
            // Hidden names belong to editors, to version control and to whatever mounts the directory.
            if name.starts_with('.') {
                continue;
            }
            let name = format!("{prefix}{name}");
            let metadata = fs::metadata(&path).map_err(LoadError::io("look at", &path))?;
            if metadata.is_dir() {
                self.enter(&path, &format!("{name}/"), depth + 1)?;
            } else if let Some(kind) = kind(&name) {
                let modified = metadata.modified().ok();
                self.found.push(Found { name, kind, path, bytes: metadata.len(), modified });
            }
        }
        Ok(())
    }
}
