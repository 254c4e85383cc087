//! Manifest of a worker bundle.

use std::collections::BTreeMap;

use model::blob::{BlobId, WorkerId};
use serde::{Deserialize, Serialize};

/// Content of a bundle. Directories are implied by the paths of files; empty directories are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub name: String,
    pub version: String,
    /// Keyed by path in the bundle.
    #[serde(default)]
    pub files: BTreeMap<String, ManifestEntry>,
    /// Environment variables of every function.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
}

/// Entry at a path: `{"blob": "blob:…", "bytes": 17, "executable": true}` or `{"link": "../lib/x"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawManifestEntry", into = "RawManifestEntry")]
pub enum ManifestEntry {
    File {
        blob: BlobId,
        bytes: u64,
        executable: bool,
    },
    /// Symbolic link within the bundle.
    Link {
        target: String,
    },
}

/// Function offered by the bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Function {
    pub name: String,
    pub version: String,
    /// Program and first arguments. A program with a `/` is a file of the bundle (`./run` for one at its root); one
    /// without is resolved through `PATH` where it runs.
    pub command: Vec<String>,
}

/// Program of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program<'a> {
    /// Path in the bundle.
    Bundled(&'a str),
    /// Name resolved through `PATH`.
    InPath(&'a str),
}

impl Manifest {
    /// Canonical encoding: fields in declaration order, maps sorted by key, functions by name and version, no
    /// whitespace.
    pub fn canonical(&self) -> Vec<u8> {
        let mut sorted = self.clone();
        sorted.functions.sort();
        serde_json::to_vec(&sorted).expect("strings, numbers and maps with string keys can be encoded as JSON")
    }

    pub fn id(&self) -> WorkerId {
        WorkerId::of(&self.canonical())
    }

    /// The function with this name and version. Without a version, the one whose version sorts last as text.
    pub fn function(&self, name: &str, version: Option<&str>) -> Option<&Function> {
        let named = self.functions.iter().filter(|function| function.name == name);
        named
            .filter(|function| version.is_none_or(|version| function.version == version))
            .max_by(|one, other| one.version.cmp(&other.version))
    }

    /// The function for a job's reference `name` or `name@version`.
    pub fn resolve_function(&self, reference: &str) -> Option<&Function> {
        match reference.split_once('@') {
            Some((name, version)) => self.function(name, Some(version)),
            None => self.function(reference, None),
        }
    }

    /// Blobs of the bundle with their sizes; may contain duplicates.
    pub fn blobs(&self) -> impl Iterator<Item = (BlobId, u64)> {
        self.files.values().filter_map(|entry| match entry {
            ManifestEntry::File { blob, bytes, .. } => Some((*blob, *bytes)),
            ManifestEntry::Link { .. } => None,
        })
    }

    /// Total size of all files.
    pub fn bytes(&self) -> u64 {
        self.blobs().fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }
}

impl Function {
    /// `None` for an empty command; registered workers have none.
    pub fn program(&self) -> Option<Program<'_>> {
        let program = self.command.first()?;
        let bundled = program.strip_prefix("./").unwrap_or(program);
        Some(if program.contains('/') { Program::Bundled(bundled) } else { Program::InPath(program) })
    }
}

#[derive(Serialize, Deserialize)]
struct RawManifestEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<BlobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    executable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

impl TryFrom<RawManifestEntry> for ManifestEntry {
    type Error = &'static str;

    fn try_from(entry: RawManifestEntry) -> Result<Self, &'static str> {
        match entry {
            RawManifestEntry { blob: Some(blob), bytes: Some(bytes), executable, link: None } => {
                Ok(Self::File { blob, bytes, executable })
            }
            RawManifestEntry { blob: None, bytes: None, executable: false, link: Some(target) } => {
                Ok(Self::Link { target })
            }
            _ => Err("a file has `blob`, `bytes` and perhaps `executable`; a link has `link` and nothing else"),
        }
    }
}

impl From<ManifestEntry> for RawManifestEntry {
    fn from(entry: ManifestEntry) -> Self {
        match entry {
            ManifestEntry::File { blob, bytes, executable } => {
                Self { blob: Some(blob), bytes: Some(bytes), executable, link: None }
            }
            ManifestEntry::Link { target } => Self { blob: None, bytes: None, executable: false, link: Some(target) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let function = |name: &str, version: &str| Function {
            name: name.to_owned(),
            version: version.to_owned(),
            command: vec!["bin/run".to_owned()],
        };
        Manifest {
            name: "tools".to_owned(),
            version: "1".to_owned(),
            files: BTreeMap::from([
                ("bin/run".to_owned(), ManifestEntry::File { blob: BlobId::of(b"x"), bytes: 1, executable: true }),
                ("run".to_owned(), ManifestEntry::Link { target: "bin/run".to_owned() }),
            ]),
            env: BTreeMap::new(),
            functions: vec![function("b", "1"), function("a", "2"), function("a", "1")],
        }
    }

    #[test]
    fn the_canonical_encoding_is_stable() {
        // A change of the encoding changes the id of every registered worker.
        let text = String::from_utf8(manifest().canonical()).unwrap();
        let expected = r#"{"name":"tools","version":"1","files":{"bin/run":{"blob":"BLOB","bytes":1,"executable":true},"run":{"link":"bin/run"}},"functions":[{"name":"a","version":"1","command":["bin/run"]},{"name":"a","version":"2","command":["bin/run"]},{"name":"b","version":"1","command":["bin/run"]}]}"#;
        assert_eq!(text, expected.replace("BLOB", &BlobId::of(b"x").to_string()));
        let mut other_order = manifest();
        other_order.functions.reverse();
        assert_eq!(other_order.id(), manifest().id());
    }

    #[test]
    fn manifests_round_trip() {
        let read: Manifest = serde_json::from_slice(&manifest().canonical()).unwrap();
        assert_eq!(read.id(), manifest().id());
        assert_eq!((read.files, read.env), (manifest().files, manifest().env));
    }

    #[test]
    fn an_entry_is_either_a_file_or_a_link() {
        for text in ["{}", r#"{"link":"a","executable":true}"#, r#"{"blob":"blob:1"}"#, r#"{"bytes":1}"#] {
            assert!(serde_json::from_str::<ManifestEntry>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn functions_are_found_by_name_and_version() {
        let manifest = manifest();
        let version = |name, version| manifest.function(name, version).map(|function| function.version.as_str());
        assert_eq!(version("a", Some("1")), Some("1"));
        assert_eq!(version("a", None), Some("2"));
        assert_eq!(version("a", Some("3")), None);
        assert_eq!(version("c", None), None);
        let resolved = |reference| manifest.resolve_function(reference).map(|function| function.version.as_str());
        assert_eq!((resolved("a"), resolved("a@1"), resolved("a@3")), (Some("2"), Some("1"), None));
    }

    #[test]
    fn a_program_with_a_slash_is_in_the_bundle() {
        let function =
            |program: &str| Function { name: String::new(), version: String::new(), command: vec![program.to_owned()] };
        assert_eq!(function("bin/run").program(), Some(Program::Bundled("bin/run")));
        assert_eq!(function("./run").program(), Some(Program::Bundled("run")));
        assert_eq!(function("python3").program(), Some(Program::InPath("python3")));
    }
}
