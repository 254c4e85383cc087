//! Shared test support for the stores.

use std::path::Path;
use std::time::{Duration, Instant};

use model::batch::{Batch, Keyspace};
use model::id::{NodeId, ShardId};
use store::{Embedded, FencingToken, Options, ShardOwner, Store};

pub const SHARD: ShardId = ShardId(0);

/// Small segments, no automatic flush by time.
pub fn small() -> Options {
    Options {
        flush_after: Duration::from_secs(3600),
        journal: journal::Options {
            segment_bytes: 64 << 10,
            first_segment_bytes: 16 << 10,
            seal_after: Duration::from_secs(3600),
            ..journal::Options::default()
        },
        ..Options::default()
    }
}

pub fn open(directory: &Path) -> Embedded {
    Embedded::open(directory, small()).unwrap()
}

pub const OWNER: ShardOwner = ShardOwner { node: NodeId(1), nonce: 1 };

/// Opens the shard of the tests.
pub fn open_shard(store: &Embedded) -> FencingToken {
    store.take_over(SHARD, OWNER).unwrap()
}

pub fn put(store: &Embedded, token: &mut FencingToken, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(Keyspace::Live, key, value);
    store.commit(token, &batch).unwrap();
}

/// Copies a directory recursively.
pub fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let target = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy_all(&item.path(), &target);
        } else {
            std::fs::copy(item.path(), target).unwrap();
        }
    }
}

/// Waits until a condition holds, and fails the test after a deadline.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        std::thread::yield_now();
    }
}
