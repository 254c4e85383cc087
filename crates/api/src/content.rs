//! Blobs and workers.

use std::collections::BTreeMap;

use model::blob::{BlobId, WorkerId};
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A stored blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BlobInfo)]
pub struct BlobView {
    pub id: BlobId,
    /// Size of the uncompressed content.
    pub bytes: u64,
}

/// Progress of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Upload)]
pub struct UploadView {
    pub id: BlobId,
    /// Bytes received so far: the offset of the next piece.
    pub received: u64,
    /// Size of the whole blob.
    pub bytes: u64,
    /// True once the blob is verified and durable.
    pub done: bool,
}

/// A list of blobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobList {
    pub blobs: Vec<BlobId>,
}

/// The blobs of a request that the server does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MissingBlobs)]
pub struct MissingView {
    pub missing: Vec<BlobId>,
}

/// A function of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Function)]
pub struct FunctionView {
    pub name: String,
    pub version: String,
    /// A program with a `/` is a file of the bundle; any other is looked up in PATH. The job's own command is appended.
    pub command: Vec<String>,
}

/// A registered worker without its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerView {
    pub id: WorkerId,
    pub name: String,
    pub version: String,
    pub functions: Vec<FunctionView>,
    /// Number of files.
    pub files: u64,
    /// Size of all files together.
    pub bytes: u64,
    pub registered_at: Timestamp,
}

/// A registered worker with its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerDetail)]
pub struct WorkerDetailView {
    pub id: WorkerId,
    pub name: String,
    pub version: String,
    pub functions: Vec<FunctionView>,
    /// Environment of every function.
    pub env: BTreeMap<String, String>,
    /// Files by path in the bundle.
    pub files: BTreeMap<String, WorkerFileView>,
    pub bytes: u64,
    pub registered_at: Timestamp,
}

/// A file with its blob, or a symbolic link with its target.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerFile)]
pub struct WorkerFileView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub blob: Option<BlobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    /// Target of a symbolic link, within the bundle. A link has no other field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub link: Option<String>,
}

/// Contents of a worker: the body of a registration. The server reads it as the `Manifest` of the crate `blobs`;
/// this type describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Manifest)]
pub struct ManifestSpec {
    pub name: String,
    pub version: String,
    /// Files by path in the bundle.
    #[serde(default)]
    pub files: BTreeMap<String, WorkerFileView>,
    /// Environment of every function.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub functions: Vec<FunctionView>,
}
