//! Content scan: finds secrets and personal data in results, and redacts them.
//!
//! A [`Scanner`] has a set of [`Pattern`]s. It scans bytes at once ([`Scanner::scan`]) or as a stream
//! ([`Scanner::stream`]) and returns the positions of matches ([`Findings`]). [`redact`] and [`Mask`] overwrite
//! findings with asterisks, byte by byte. [`Scanner::redact_json`] replaces them in a JSON document, which stays valid
//! JSON.
//!
//! A pattern is tried only at its anchors: certain words, or runs of digits of a certain shape. One pass over the text
//! finds all anchors; the rest of the work is proportional to their number. A match depends only on bytes within
//! [`BACK_BYTES_MAX`] before and [`MATCH_BYTES_MAX`] after its anchor, so the findings are the same for any chunking of
//! a stream. A longer secret is recognised by its beginning, and extended while the bytes belong to its class.
//!
//! Text is UTF-8 or another superset of ASCII, or UTF-16 with a byte order mark. Compressed, encrypted or encoded data
//! is not decoded, except for JSON strings that are base64, one level deep. Findings are heuristic: there are false
//! negatives and false positives.
//!
//! The crate is pure: no clock, no files, no threads.

mod base64;
mod checks;
mod class;
mod collector;
mod encoding;
mod error;
mod findings;
mod json;
mod mask;
mod matcher;
mod pattern;
mod patterns;
mod scanner;
mod stream;

pub use encoding::Encoding;
pub use error::{Error, JsonError};
pub use findings::{Finding, Findings};
pub use json::RedactedJson;
pub use mask::{Mask, redact};
pub use pattern::{Kind, Pattern};
pub use scanner::Scanner;
pub use stream::{Limits, Stream};

/// Maximum distance from the start of a match to its anchor, in bytes.
pub const BACK_BYTES_MAX: usize = 64;

/// Number of bytes after the anchor that a pattern can match. Longer secrets are found by their beginning.
pub const MATCH_BYTES_MAX: usize = 8 << 10;

/// Size of the window that is scanned at a time, in bytes. A stream buffers slightly more.
pub const WINDOW_BYTES: usize = 128 << 10;

/// Upper bound for [`Limits::findings_max`]. Findings beyond it are counted, but not listed.
pub const FINDINGS_MAX: usize = 100_000;

/// Maximum size of a JSON document for [`Scanner::redact_json`], in bytes.
pub const JSON_BYTES_MAX: usize = 64 << 20;

/// Maximum nesting depth of a JSON document.
pub const JSON_DEPTH_MAX: usize = 128;

/// Minimum and maximum length of a JSON string that is decoded as base64, in bytes.
pub const BASE64_BYTES_MIN: usize = 16;
pub const BASE64_BYTES_MAX: usize = 1 << 20;
