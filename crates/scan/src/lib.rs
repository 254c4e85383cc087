//! Finds secrets and personal data in results, and removes them.
//!
//! A [`Scanner`] knows a set of [`Pattern`]s. It looks through bytes at once ([`Scanner::scan`]) or as they come
//! ([`Scanner::stream`]) and says where something stands ([`Findings`]). Then either [`redact`] or [`Mask`] puts stars
//! over it, byte for byte, or [`Scanner::redact_json`] replaces it in a JSON text, which stays one.
//!
//! A pattern is tried only where one of its words stands, or digits that look right: one pass over the text finds all
//! such places, and the rest of the work is in proportion to their number. What a pattern finds depends on nothing
//! farther away than [`BACK_BYTES_MAX`] and [`MATCH_BYTES_MAX`]; so a text may come in any pieces, and the findings are
//! the same. What is longer is known by how it begins and goes on as far as its bytes look the same.
//!
//! Text is read as UTF-8 or as any other bytes that agree with ASCII; after a byte order mark, as UTF-16. What is
//! compressed, encrypted or encoded is not seen through, but for the strings of a JSON text that are base64 as a whole,
//! once. Findings are likely ones: a scanner can neither know every secret nor be sure of each.
//!
//! Everything here is pure: bytes in, findings out. No clock, no files, no threads.

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

/// How far a match may begin before the word that it is known by, in bytes.
pub const BACK_BYTES_MAX: usize = 64;

/// How far a pattern sees, in bytes. What is longer is found by its beginning.
pub const MATCH_BYTES_MAX: usize = 8 << 10;

/// How many bytes of text are looked through at a time. A stream holds a little more than this.
pub const WINDOW_BYTES: usize = 128 << 10;

/// How many findings are kept, at most, whatever the limits of a stream say. All are counted.
pub const FINDINGS_MAX: usize = 100_000;

/// How large a JSON text may be to be redacted as such, in bytes.
pub const JSON_BYTES_MAX: usize = 64 << 20;

/// How deep the arrays and objects of a JSON text may be nested.
pub const JSON_DEPTH_MAX: usize = 128;

/// Strings of a JSON text are taken for base64 from this length on and up to that one, in bytes.
pub const BASE64_BYTES_MIN: usize = 16;
pub const BASE64_BYTES_MAX: usize = 1 << 20;
