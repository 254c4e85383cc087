//! Takes findings out of a JSON text, which stays one of the same shape.
//!
//! Everything but strings with findings is copied as it is written: numbers keep their digits, members their order.
//! Strings are looked at as they are meant, without their escapes, so an escape hides nothing. What was found is
//! replaced by `[redacted:<pattern>]`.
//!
//! Three things are seen here that a scan of the bytes does not see: what escapes hide, values under a name that says
//! they are secret, and strings that are base64 as a whole (once: base64 within base64 is not seen through).

mod text;
mod walk;

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use crate::error::JsonError;
use crate::scanner::Scanner;
use crate::{JSON_BYTES_MAX, JSON_DEPTH_MAX};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedJson {
    /// A JSON text of the same shape.
    pub text: String,
    /// How many findings of each pattern were taken out. Nothing here means that the text is as it was.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Scanner {
    /// Replaces findings in the strings of a JSON text, names of members included. A number that is a finding (of a
    /// card) becomes a string. Names that would become the same get a number.
    pub fn redact_json(&self, json: &str) -> Result<RedactedJson, JsonError> {
        if json.len() > JSON_BYTES_MAX {
            return Err(JsonError::TooLarge { bytes: json.len(), limit: JSON_BYTES_MAX });
        }
        // The walk below counts on a text that is right.
        serde_json::from_str::<IgnoredAny>(json).map_err(|error| JsonError::NotJson { why: error.to_string() })?;
        walk::Walk::new(self, json).run().ok_or(JsonError::TooDeep { limit: JSON_DEPTH_MAX })
    }
}
