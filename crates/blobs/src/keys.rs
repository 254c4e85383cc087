//! Object keys of blobs and manifests.

use model::blob::{BlobId, WorkerId};
use object_store::path::Path;

pub(crate) const BLOBS: &str = "blobs";
pub(crate) const WORKERS: &str = "workers";

/// Two levels of 256 prefixes, so that no directory gets millions of entries.
pub(crate) fn blob_key(id: BlobId) -> Path {
    let hex = id.hex();
    Path::from(format!("{BLOBS}/{}/{}/{hex}", &hex[..2], &hex[2..4]))
}

pub(crate) fn worker_key(id: WorkerId) -> Path {
    Path::from(format!("{WORKERS}/{id}"))
}

/// `None` if the key is not that of a blob.
pub(crate) fn blob_of(key: &Path) -> Option<BlobId> {
    let id = format!("blob:{}", key.filename()?).parse().ok()?;
    (blob_key(id) == *key).then_some(id)
}

pub(crate) fn worker_of(key: &Path) -> Option<WorkerId> {
    let id = key.filename()?.parse().ok()?;
    (worker_key(id) == *key).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip() {
        let id = BlobId::of(b"x");
        assert_eq!(blob_of(&blob_key(id)), Some(id));
        let worker = WorkerId::of(b"x");
        assert_eq!(worker_of(&worker_key(worker)), Some(worker));
        assert_eq!(blob_of(&Path::from("blobs/aa/bb/readme")), None);
        assert_eq!(blob_of(&Path::from(format!("blobs/zz/zz/{}", id.hex()))), None);
    }
}
