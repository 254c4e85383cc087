//! Definitions of workflows in files: read, completed with the files they refer to, and compiled before they are sent.

mod embed;
mod invalid;
mod located;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use workflow::limits::DEFINITION_BYTES_MAX;
use workflow::{Plan, Source};

use crate::text::{self, Wanted};
pub use embed::beside;
pub use invalid::{Invalid, Shown};
pub use located::{Data, Located};

pub use crate::text::called;

/// The workflow of a file, YAML or JSON; `-` is standard input.
pub fn open(path: &Path) -> Result<Arc<Plan>> {
    embed::Loader::default().load(path)
}

/// The workflow that stands inside another file. `at` is its place there, for what is said about it.
pub fn within(definition: Located, path: &Path, at: &str) -> Result<Arc<Plan>> {
    embed::Loader::default().complete(definition, path, at)
}

const WANTED: Wanted =
    Wanted { bytes_max: DEFINITION_BYTES_MAX, at: "", too_much: "a definition may have", why_text: "" };

/// The text of a file, or of standard input.
pub fn read(path: &Path) -> Result<String> {
    text::read(path, &WANTED)
}

/// In which notation a text is: by the ending of its file, else by how it begins.
fn source<'a>(path: &Path, text: &'a str) -> Source<'a> {
    let is_json = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => true,
        Some("yaml" | "yml") => false,
        Some(_) | None => text.trim_start().starts_with('{'),
    };
    if is_json { Source::Json(text.as_bytes()) } else { Source::Yaml(text) }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;
    use crate::exit::{NotFound, Usage};

    fn read_text(reader: impl Read, name: &str) -> Result<String> {
        text::read_from(reader, name, &WANTED)
    }

    #[test]
    fn only_text_of_a_bearable_size_is_read() {
        assert_eq!(read_text("grüße".as_bytes(), "x").unwrap(), "grüße");
        let error = read_text(&b"ab\xff"[..], "x").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("see byte 2"), "{error}");
        let at_the_limit = read_text(io::repeat(b'x').take(DEFINITION_BYTES_MAX as u64), "x").unwrap();
        assert_eq!(at_the_limit.len(), DEFINITION_BYTES_MAX);
        let error = read_text(io::repeat(b'x'), "x").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("64 MiB"), "{error}");
        assert!(read(Path::new("/does/not/exist.yaml")).unwrap_err().is::<NotFound>());
    }

    #[test]
    fn the_ending_tells_the_notation_and_else_the_first_sign() {
        let is_json = |path: &str, text| matches!(source(Path::new(path), text), Source::Json(_));
        assert!(is_json("a.json", "") && is_json("-", "\n {\"name\": 1}") && is_json("a.txt", "{"));
        assert!(!is_json("a.yaml", "{") && !is_json("a.yml", "{") && !is_json("-", "name: x"));
    }
}
