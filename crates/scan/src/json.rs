//! Redacts a JSON document and preserves its structure.
//!
//! Strings are scanned without their escapes. Findings are replaced by the redaction mark `[redacted:<pattern>]`; a
//! number with a finding becomes a string that consists of the mark. Everything else is copied verbatim: numbers keep
//! their digits, members their order.
//!
//! In contrast to a scan of the bytes, this finds secrets behind escapes, string values under a name that indicates a
//! secret, and secrets in strings that are base64 (one level deep). Redacting a redacted document changes nothing.

mod text;
mod walk;

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use crate::error::JsonError;
use crate::scanner::Scanner;
use crate::{JSON_BYTES_MAX, JSON_DEPTH_MAX};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedJson {
    /// The redacted document, with the same structure.
    pub text: String,
    /// Number of redacted findings by pattern. If empty, the document is unchanged.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Scanner {
    /// Redacts the strings, member names and numbers of a JSON document. Member names that would become equal get a
    /// numeric suffix.
    pub fn redact_json(&self, json: &str) -> Result<RedactedJson, JsonError> {
        if json.len() > JSON_BYTES_MAX {
            return Err(JsonError::TooLarge { bytes: json.len(), limit: JSON_BYTES_MAX });
        }
        // The walk below requires valid JSON.
        serde_json::from_str::<IgnoredAny>(json).map_err(|error| JsonError::NotJson { why: error.to_string() })?;
        walk::JsonWalk::new(self, json).run().ok_or(JsonError::TooDeep { limit: JSON_DEPTH_MAX })
    }
}
