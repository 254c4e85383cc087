//! Errors of the scanner.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unknown pattern `{name}`. Known patterns: {known}")]
    UnknownPattern { name: String, known: String },

    #[error("no patterns are selected. Select at least one")]
    NoPatterns,
}

/// The reason why a JSON document was not redacted. It was not scanned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("the text is not valid JSON: {why}. Scan it as bytes instead")]
    NotJson { why: String },

    #[error("the JSON document has {bytes} bytes, the limit is {limit} bytes. Scan it as bytes instead")]
    TooLarge { bytes: usize, limit: usize },

    #[error("the JSON document is nested deeper than {limit} levels. Scan it as bytes instead")]
    TooDeep { limit: usize },
}
