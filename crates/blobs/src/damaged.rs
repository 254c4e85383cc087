//! Blobs that were found damaged.
//!
//! They count as missing, so that a client is asked for them again and its upload replaces them. Nothing is deleted:
//! somebody may want to look. After a restart they are found anew.

use std::collections::HashSet;

use model::blob::BlobId;
use parking_lot::Mutex;

use crate::Error;
use crate::limits::DAMAGED_MAX;

#[derive(Debug, Default)]
pub(crate) struct Damaged {
    ids: Mutex<HashSet<BlobId>>,
}

impl Damaged {
    pub fn note<T>(&self, id: BlobId, result: Result<T, Error>) -> Result<T, Error> {
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

    pub fn forget(&self, id: BlobId) {
        self.ids.lock().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_remembered_than_the_limit() {
        let damaged = Damaged::default();
        for number in 0..=DAMAGED_MAX {
            let id = BlobId::of(&number.to_le_bytes());
            assert!(damaged.note::<()>(id, Err(Error::damaged(id, "it is a test"))).is_err());
            assert_eq!(damaged.contains(id), number < DAMAGED_MAX);
        }
    }
}
