//! Problem documents (RFC 9457) and their codes.

mod kind;

use model::blob::BlobId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::DiagnosticView;
pub use kind::ProblemKind;

/// An error, as RFC 9457 defines it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Link to the description of the code.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    /// Stable, snake_case. `x-error-codes` lists all codes.
    pub code: String,
    /// The field, parameter or header at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub field: Option<String>,
    /// Missing blobs, with `blob_missing` and `blobs_missing`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobId>,
    /// Offset of the next piece of an upload, with `wrong_offset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// All problems of a definition or its inputs, with `invalid_definition` and `invalid_inputs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticView>,
}
