//! Blobs and workers as the API shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::blob::{BlobId, WorkerId};
use crate::time::Timestamp;

/// Content that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobView {
    pub id: BlobId,
    /// Of the plain content.
    pub bytes: u64,
}

/// How far an upload is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadView {
    pub id: BlobId,
    /// Where to continue.
    pub received: u64,
    /// What the whole will be.
    pub bytes: u64,
    /// The blob is there, verified and durable.
    pub done: bool,
}

/// Which blobs are meant: the body of the question what is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobList {
    pub blobs: Vec<BlobId>,
}

/// Of the blobs that were asked for, those that must be uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingView {
    pub missing: Vec<BlobId>,
}

/// Something that a worker can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionView {
    pub name: String,
    pub version: String,
    pub command: Vec<String>,
}

/// A registered worker as it is listed: all but its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    pub id: WorkerId,
    pub name: String,
    pub version: String,
    pub functions: Vec<FunctionView>,
    /// How many it has.
    pub files: u64,
    /// Of all files together.
    pub bytes: u64,
    pub registered_at: Timestamp,
}

/// A registered worker in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerDetailView {
    pub id: WorkerId,
    pub name: String,
    pub version: String,
    pub functions: Vec<FunctionView>,
    pub env: BTreeMap<String, String>,
    /// By path in the bundle.
    pub files: BTreeMap<String, WorkerFileView>,
    pub bytes: u64,
    pub registered_at: Timestamp,
}

/// What is at a path of a worker: a file with its blob, or a link with its target.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerFileView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}
