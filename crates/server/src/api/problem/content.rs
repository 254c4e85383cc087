//! What can be wrong with blobs and workers, under the codes that the crate `blobs` gives.

use axum::http::StatusCode;

use super::{Fault, Refused};

/// How many missing blobs a refusal names; with more, `POST /v1/blobs/missing` tells them all.
const NAMED_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentFault {
    UnknownBlob,
    UnknownWorker,
    UnknownUpload,
    /// A job names a blob that is not there.
    BlobMissing,
    /// A worker does.
    BlobsMissing,
    /// A job names a worker that is not there.
    WorkerMissing,
    Damaged,
    Mismatch,
    WrongOffset,
    BadRange,
    LengthRequired,
    DiskFull,
    CacheFull,
    TooLarge,
    TooMany,
    BadPath,
    BadGlob,
    BadManifest,
    UnderWay,
    InUse,
    Interrupted,
    Io,
    Storage,
}

impl ContentFault {
    /// The status, the stable code, and what it is called.
    pub fn facts(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::UnknownBlob => (S::NOT_FOUND, "blob_not_found", "There is no such blob"),
            Self::UnknownWorker => (S::NOT_FOUND, "worker_not_found", "There is no such worker"),
            Self::UnknownUpload => (S::NOT_FOUND, "upload_not_found", "No such upload is under way"),
            Self::BlobMissing => (S::CONFLICT, "blob_missing", "The job names blobs that the server lacks"),
            Self::BlobsMissing => (S::CONFLICT, "blobs_missing", "The worker is made of blobs that the server lacks"),
            Self::WorkerMissing => (S::CONFLICT, "worker_not_found", "The job names a worker that is not registered"),
            Self::Damaged => (S::INTERNAL_SERVER_ERROR, "damaged", "What is stored is not what was written"),
            Self::Mismatch => (S::UNPROCESSABLE_ENTITY, "blob_mismatch", "The content is not the one that was named"),
            Self::WrongOffset => (S::CONFLICT, "wrong_offset", "The upload goes on somewhere else"),
            Self::BadRange => (S::RANGE_NOT_SATISFIABLE, "bad_range", "There is no such part"),
            Self::LengthRequired => (S::LENGTH_REQUIRED, "length_required", "How much will come must be said first"),
            Self::DiskFull => (S::INSUFFICIENT_STORAGE, "disk_full", "The server has no space left"),
            Self::CacheFull => (S::SERVICE_UNAVAILABLE, "cache_full", "Running jobs need all of the server's cache"),
            Self::TooLarge => (S::PAYLOAD_TOO_LARGE, "too_large", "The content is too large"),
            Self::TooMany => (S::PAYLOAD_TOO_LARGE, "too_many", "There are too many of them"),
            Self::BadPath => (S::BAD_REQUEST, "bad_path", "A path cannot be used"),
            Self::BadGlob => (S::BAD_REQUEST, "bad_glob", "A glob cannot be used"),
            Self::BadManifest => (S::BAD_REQUEST, "bad_manifest", "The manifest cannot be used"),
            Self::UnderWay => (S::CONFLICT, "busy", "Somebody else is at it right now"),
            Self::InUse => (S::INTERNAL_SERVER_ERROR, "in_use", "Another process uses the server's directory"),
            Self::Interrupted => (S::BAD_REQUEST, "interrupted", "The content stopped in the middle"),
            Self::Io => (S::INTERNAL_SERVER_ERROR, "io", "The server's disk does not do what it should"),
            Self::Storage => (S::SERVICE_UNAVAILABLE, "storage", "The blob store does not do what it should"),
        }
    }

    pub fn retry_after_secs(self) -> Option<u64> {
        match self {
            Self::CacheFull | Self::Storage | Self::UnderWay => Some(1),
            _ => None,
        }
    }
}

impl From<ContentFault> for Fault {
    fn from(fault: ContentFault) -> Self {
        Self::Content(fault)
    }
}

fn fault_of(error: &blobs::Error) -> Fault {
    use blobs::Error as E;
    Fault::Content(match error {
        E::NotFound { .. } => ContentFault::UnknownBlob,
        E::WorkerNotFound { .. } => ContentFault::UnknownWorker,
        E::UploadNotFound { .. } => ContentFault::UnknownUpload,
        E::Damaged { .. } => ContentFault::Damaged,
        E::Mismatch { .. } => ContentFault::Mismatch,
        E::WrongOffset { .. } => ContentFault::WrongOffset,
        E::BadRange { .. } => ContentFault::BadRange,
        E::Full { .. } => ContentFault::DiskFull,
        E::CacheFull { .. } => ContentFault::CacheFull,
        E::TooLarge { .. } => ContentFault::TooLarge,
        E::TooMany { .. } => ContentFault::TooMany,
        E::BadPath { .. } => ContentFault::BadPath,
        E::BadGlob { .. } => ContentFault::BadGlob,
        E::BadManifest { .. } => ContentFault::BadManifest,
        E::BlobsMissing { .. } => ContentFault::BlobsMissing,
        E::Busy { .. } => ContentFault::UnderWay,
        E::InUse { .. } => ContentFault::InUse,
        E::Interrupted { .. } => ContentFault::Interrupted,
        E::Io { .. } => ContentFault::Io,
        E::Storage { .. } => ContentFault::Storage,
        E::Stopping => return Fault::Stopping,
    })
}

impl From<blobs::Error> for Refused {
    fn from(error: blobs::Error) -> Self {
        let fault = fault_of(&error);
        if fault.facts().0.is_server_error() {
            tracing::error!(%error, "a request about blobs could not be answered");
        }
        let refused = Self::saying(fault, error.to_string());
        match error {
            blobs::Error::WrongOffset { expected, .. } => refused.going_on_at(expected),
            blobs::Error::BlobsMissing { mut ids } => {
                ids.truncate(NAMED_MAX);
                refused.lacking(ids)
            }
            _ => refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::blob::{BlobId, WorkerId};

    use super::*;

    #[test]
    fn errors_about_blobs_keep_their_codes() {
        let id = BlobId::of(b"x");
        for error in [
            blobs::Error::NotFound { id },
            blobs::Error::WorkerNotFound { id: WorkerId::of(b"x") },
            blobs::Error::UploadNotFound { id },
            blobs::Error::Damaged { what: String::new(), why: String::new() },
            blobs::Error::Mismatch { id, found: id },
            blobs::Error::WrongOffset { id, expected: 5, asked: 0 },
            blobs::Error::BadRange { start: 1, end: 2, bytes: 0 },
            blobs::Error::Full { path: "x".into() },
            blobs::Error::CacheFull { needed: 1, pinned: 1, limit: 1 },
            blobs::Error::TooLarge { what: String::new(), bytes: 2, limit: 1 },
            blobs::Error::TooMany { what: "x", limit: 1 },
            blobs::Error::BadPath { path: String::new(), why: String::new() },
            blobs::Error::BadGlob { glob: String::new(), why: String::new() },
            blobs::Error::BadManifest { why: String::new() },
            blobs::Error::BlobsMissing { ids: vec![id] },
            blobs::Error::Busy { what: String::new() },
            blobs::Error::InUse { directory: "x".into() },
            blobs::Error::Interrupted { reason: String::new() },
            blobs::Error::Io { action: "x", path: "x".into(), source: std::io::Error::other("x") },
            blobs::Error::Storage { action: "x", reason: String::new() },
            blobs::Error::Stopping,
        ] {
            let code = error.code();
            assert_eq!(Refused::from(error).problem().code, code);
        }
    }

    #[test]
    fn a_refusal_says_what_is_missing_and_where_to_go_on() {
        let id = BlobId::of(b"x");
        let problem = Refused::from(blobs::Error::BlobsMissing { ids: vec![id] }).problem();
        assert_eq!((problem.blobs, problem.offset), (vec![id], None));
        let problem = Refused::from(blobs::Error::WrongOffset { id, expected: 5, asked: 0 }).problem();
        assert_eq!((problem.blobs, problem.offset), (Vec::new(), Some(5)));
    }
}
