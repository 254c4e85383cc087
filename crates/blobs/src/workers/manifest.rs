//! What a bundle is made of.

use std::collections::BTreeMap;

use model::blob::{BlobId, WorkerId};
use serde::{Deserialize, Serialize};

/// Directories are there because files are; empty ones are not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub name: String,
    pub version: String,
    /// By path in the bundle.
    #[serde(default)]
    pub files: BTreeMap<String, Entry>,
    /// What every function's process finds in its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
}

/// What is at a path: `{"blob": "blob:…", "bytes": 17, "executable": true}` or `{"link": "../lib/x"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PlainEntry", into = "PlainEntry")]
pub enum Entry {
    File {
        blob: BlobId,
        bytes: u64,
        executable: bool,
    },
    /// A symbolic link to somewhere in the bundle.
    Link {
        target: String,
    },
}

/// Something that the bundle can do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Function {
    pub name: String,
    pub version: String,
    /// The program and its first arguments. A program with a `/` in it is a file of the bundle, `./run` one at its top;
    /// one without is looked for in the `PATH` of where it runs.
    pub command: Vec<String>,
}

/// What a function starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program<'a> {
    /// A path in the bundle.
    Bundled(&'a str),
    /// A name to be looked for.
    InPath(&'a str),
}

impl Manifest {
    /// One manifest, one sequence of bytes: fields in the order of the type, maps by key, functions by name and version,
    /// no blanks.
    pub fn canonical(&self) -> Vec<u8> {
        let mut sorted = self.clone();
        sorted.functions.sort();
        serde_json::to_vec(&sorted).expect("texts, numbers and maps with keys of text have a JSON form")
    }

    pub fn id(&self) -> WorkerId {
        WorkerId::of(&self.canonical())
    }

    /// The function of this name, in the version asked for; if none is, in the one that sorts last as text.
    pub fn function(&self, name: &str, version: Option<&str>) -> Option<&Function> {
        let named = self.functions.iter().filter(|function| function.name == name);
        named
            .filter(|function| version.is_none_or(|version| function.version == version))
            .max_by(|one, other| one.version.cmp(&other.version))
    }

    /// The function that a job means by `name` or `name@version`.
    pub fn function_called(&self, reference: &str) -> Option<&Function> {
        match reference.split_once('@') {
            Some((name, version)) => self.function(name, Some(version)),
            None => self.function(reference, None),
        }
    }

    /// Every blob that the bundle needs, each with its size; the same one may come more than once.
    pub fn blobs(&self) -> impl Iterator<Item = (BlobId, u64)> {
        self.files.values().filter_map(|entry| match entry {
            Entry::File { blob, bytes, .. } => Some((*blob, *bytes)),
            Entry::Link { .. } => None,
        })
    }

    /// Of all files together.
    pub fn bytes(&self) -> u64 {
        self.blobs().fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }
}

impl Function {
    /// `None` for an empty command, which no registered worker has.
    pub fn program(&self) -> Option<Program<'_>> {
        let program = self.command.first()?;
        let bundled = program.strip_prefix("./").unwrap_or(program);
        Some(if program.contains('/') { Program::Bundled(bundled) } else { Program::InPath(program) })
    }
}

#[derive(Serialize, Deserialize)]
struct PlainEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<BlobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    executable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

impl TryFrom<PlainEntry> for Entry {
    type Error = &'static str;

    fn try_from(entry: PlainEntry) -> Result<Self, &'static str> {
        match entry {
            PlainEntry { blob: Some(blob), bytes: Some(bytes), executable, link: None } => {
                Ok(Self::File { blob, bytes, executable })
            }
            PlainEntry { blob: None, bytes: None, executable: false, link: Some(target) } => Ok(Self::Link { target }),
            _ => Err("a file has `blob`, `bytes` and perhaps `executable`; a link has `link` and nothing else"),
        }
    }
}

impl From<Entry> for PlainEntry {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::File { blob, bytes, executable } => {
                Self { blob: Some(blob), bytes: Some(bytes), executable, link: None }
            }
            Entry::Link { target } => Self { blob: None, bytes: None, executable: false, link: Some(target) },
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
                ("bin/run".to_owned(), Entry::File { blob: BlobId::of(b"x"), bytes: 1, executable: true }),
                ("run".to_owned(), Entry::Link { target: "bin/run".to_owned() }),
            ]),
            env: BTreeMap::new(),
            functions: vec![function("b", "1"), function("a", "2"), function("a", "1")],
        }
    }

    #[test]
    fn the_canonical_form_stays_what_it_is() {
        // Names of registered workers depend on it: a change here is a change of every name.
        let text = String::from_utf8(manifest().canonical()).unwrap();
        let expected = r#"{"name":"tools","version":"1","files":{"bin/run":{"blob":"BLOB","bytes":1,"executable":true},"run":{"link":"bin/run"}},"functions":[{"name":"a","version":"1","command":["bin/run"]},{"name":"a","version":"2","command":["bin/run"]},{"name":"b","version":"1","command":["bin/run"]}]}"#;
        assert_eq!(text, expected.replace("BLOB", &BlobId::of(b"x").to_string()));
        let mut other_order = manifest();
        other_order.functions.reverse();
        assert_eq!(other_order.id(), manifest().id());
    }

    #[test]
    fn manifests_read_back() {
        let read: Manifest = serde_json::from_slice(&manifest().canonical()).unwrap();
        assert_eq!(read.id(), manifest().id());
        assert_eq!((read.files, read.env), (manifest().files, manifest().env));
    }

    #[test]
    fn an_entry_is_a_file_or_a_link_and_not_both() {
        for text in ["{}", r#"{"link":"a","executable":true}"#, r#"{"blob":"blob:1"}"#, r#"{"bytes":1}"#] {
            assert!(serde_json::from_str::<Entry>(text).is_err(), "{text}");
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
        let called = |reference| manifest.function_called(reference).map(|function| function.version.as_str());
        assert_eq!((called("a"), called("a@1"), called("a@3")), (Some("2"), Some("1"), None));
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
