//! What can go wrong, and what to do.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is no pattern `{name}`. Known are: {known}")]
    UnknownPattern { name: String, known: String },

    #[error("no pattern is left to look for. Name at least one")]
    NoPatterns,
}

/// Why a JSON text was not redacted as one. Nothing was looked for in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("this is no JSON text: {why}. Scan it as bytes")]
    NotJson { why: String },

    #[error("the JSON text has {bytes} bytes, the limit is {limit}. Scan it as bytes")]
    TooLarge { bytes: usize, limit: usize },

    #[error("the JSON text is nested deeper than {limit}. Scan it as bytes")]
    TooDeep { limit: usize },
}
