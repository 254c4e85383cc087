//! Problems of blobs and workers, under the codes of the crate `blobs`.

use super::{ProblemKind, Refused};

/// Missing blobs listed in one problem. `POST /v1/blobs/missing` lists them all.
const LISTED_MAX: usize = 10_000;

fn kind_of(error: &blobs::Error) -> ProblemKind {
    use blobs::Error as E;
    match error {
        E::NotFound { .. } => ProblemKind::UnknownBlob,
        E::WorkerNotFound { .. } => ProblemKind::UnknownWorker,
        E::UploadNotFound { .. } => ProblemKind::UnknownUpload,
        E::Damaged { .. } => ProblemKind::BlobDamaged,
        E::Mismatch { .. } => ProblemKind::BlobMismatch,
        E::WrongOffset { .. } => ProblemKind::WrongOffset,
        E::BadRange { .. } => ProblemKind::BadRange,
        E::Full { .. } => ProblemKind::DiskFull,
        E::CacheFull { .. } => ProblemKind::CacheFull,
        E::TooLarge { .. } => ProblemKind::TooLarge,
        E::TooMany { .. } => ProblemKind::TooMany,
        E::BadPath { .. } => ProblemKind::BadPath,
        E::BadGlob { .. } => ProblemKind::BadGlob,
        E::BadManifest { .. } => ProblemKind::BadManifest,
        E::BlobsMissing { .. } => ProblemKind::BlobsMissing,
        E::Busy { .. } => ProblemKind::ContentBusy,
        E::InUse { .. } => ProblemKind::InUse,
        E::Interrupted { .. } => ProblemKind::Interrupted,
        E::Io { .. } => ProblemKind::Io,
        E::Storage { .. } => ProblemKind::Storage,
        // Only between a runner node and the control node; the API is served by nodes with a store of their own.
        E::Unreachable { .. } | E::NotAtThisNode { .. } => ProblemKind::Storage,
        E::Rejected { .. } => ProblemKind::BlobMismatch,
        E::Stopping => ProblemKind::Stopping,
    }
}

impl From<blobs::Error> for Refused {
    fn from(error: blobs::Error) -> Self {
        let kind = kind_of(&error);
        if kind.status() >= 500 {
            tracing::error!(%error, "a request about blobs failed");
        }
        let refused = Self::detailed(kind, error.to_string());
        match error {
            blobs::Error::WrongOffset { expected, .. } => refused.continue_at(expected),
            blobs::Error::BlobsMissing { mut ids } => {
                ids.truncate(LISTED_MAX);
                refused.missing_blobs(ids)
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
            blobs::Error::WrongOffset { id, expected: 5, requested: 0 },
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
    fn a_problem_lists_missing_blobs_and_the_offset_of_an_upload() {
        let id = BlobId::of(b"x");
        let problem = Refused::from(blobs::Error::BlobsMissing { ids: vec![id] }).problem();
        assert_eq!((problem.blobs, problem.offset), (vec![id], None));
        let problem = Refused::from(blobs::Error::WrongOffset { id, expected: 5, requested: 0 }).problem();
        assert_eq!((problem.blobs, problem.offset), (Vec::new(), Some(5)));
    }
}
