//! Set of blobs found to be damaged.
//!
//! A damaged blob counts as missing, so that a client uploads it again and replaces it. Damaged objects are not
//! deleted, so that an operator can inspect them. The set is in memory; after a restart the damage is detected again.

use std::collections::HashSet;

use model::blob::BlobId;
use parking_lot::Mutex;

use crate::Error;
use crate::limits::DAMAGED_MAX;

#[derive(Debug, Default)]
pub(crate) struct DamagedBlobs {
    ids: Mutex<HashSet<BlobId>>,
}

impl DamagedBlobs {
    pub fn record<T>(&self, id: BlobId, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error @ Error::Damaged { .. }) = &result {
            tracing::error!("{error}");
            let mut ids = self.ids.lock();
            if ids.len() < DAMAGED_MAX {
                ids.insert(id);
            }
        }
        result
    }

    pub fn contains(&self, id: BlobId) -> bool {
        self.ids.lock().contains(&id)
    }

    pub fn remove(&self, id: BlobId) {
        self.ids.lock().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_blobs_are_recorded_up_to_the_limit() {
        let damaged = DamagedBlobs::default();
        for number in 0..=DAMAGED_MAX {
            let id = BlobId::of(&number.to_le_bytes());
            assert!(damaged.record::<()>(id, Err(Error::damaged(id, "it is a test"))).is_err());
            assert_eq!(damaged.contains(id), number < DAMAGED_MAX);
        }
    }
}
