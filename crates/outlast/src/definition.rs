//! Workflow definition files: read, embed referenced files, compile.

mod embed;
mod invalid;
mod located;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use workflow::limits::DEFINITION_BYTES_MAX;
use workflow::{Plan, Source};

use crate::text::{self, TextLimits};
pub use embed::resolve_relative;
pub use invalid::{FileDiagnostic, InvalidDefinition};
pub use located::{Data, Located};

pub use crate::text::display_name;

/// Compiles a YAML or JSON file; `-` is standard input.
pub fn open(path: &Path) -> Result<Arc<Plan>> {
    embed::Loader::default().load(path)
}

/// Compiles a definition inside another file. `at` is its field there, for error messages.
pub fn within(definition: Located, path: &Path, at: &str) -> Result<Arc<Plan>> {
    embed::Loader::default().complete(definition, path, at)
}

const TEXT_LIMITS: TextLimits = TextLimits {
    bytes_max: DEFINITION_BYTES_MAX,
    prefix: "",
    limit_reason: "the limit of a definition",
    encoding_reason: "",
};

/// Reads a file or standard input.
pub fn read(path: &Path) -> Result<String> {
    text::read(path, &TEXT_LIMITS)
}

/// Format of a text, by file extension or else by its first character.
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
        text::read_from(reader, name, &TEXT_LIMITS)
    }

    #[test]
    fn oversized_and_binary_files_are_rejected() {
        assert_eq!(read_text("grüße".as_bytes(), "x").unwrap(), "grüße");
        let error = read_text(&b"ab\xff"[..], "x").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("invalid byte at 2"), "{error}");
        let at_the_limit = read_text(io::repeat(b'x').take(DEFINITION_BYTES_MAX as u64), "x").unwrap();
        assert_eq!(at_the_limit.len(), DEFINITION_BYTES_MAX);
        let error = read_text(io::repeat(b'x'), "x").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("4 MiB"), "{error}");
        assert!(read(Path::new("/does/not/exist.yaml")).unwrap_err().is::<NotFound>());
    }

    #[test]
    fn the_format_follows_from_the_extension_or_the_first_character() {
        let is_json = |path: &str, text| matches!(source(Path::new(path), text), Source::Json(_));
        assert!(is_json("a.json", "") && is_json("-", "\n {\"name\": 1}") && is_json("a.txt", "{"));
        assert!(!is_json("a.yaml", "{") && !is_json("a.yml", "{") && !is_json("-", "name: x"));
    }
}
