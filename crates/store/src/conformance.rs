//! One suite that every store must pass. A store's tests hand in a [`Fixture`] and call
//! [`conformance_tests!`](crate::conformance_tests), which makes one test of each check.
//!
//! Checks panic when a promise is broken, with the promise in words.

mod commits;
mod events;
mod scans;

pub use commits::*;
pub use events::*;
pub use scans::*;

use bytes::Bytes;
use model::batch::{Batch, Keyspace};
use model::id::{Epoch, NodeId, ShardId};

use crate::{Key, Order, Range, Store};

/// A store under test, with what only its own kind knows.
pub trait Fixture {
    fn store(&self) -> &dyn Store;

    /// Ends the process that uses the store, so to speak, and starts another.
    fn reopen(&mut self);

    /// Moves what is in memory to where older data is, if there is such a difference.
    fn settle(&self);

    /// Forgets old events, so that a cursor at the beginning expires.
    fn expire_events(&mut self);
}

/// Makes a test of every check, each with a fixture of its own.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture,
            only_the_newest_epoch_commits,
            epochs_go_on_after_reopening,
            a_batch_is_visible_as_a_whole,
            a_read_sees_what_was_committed_before,
            later_writes_win_and_deletes_hide,
            reopening_keeps_everything,
            shards_do_not_see_each_other,
            shards_commit_side_by_side,
            an_empty_batch_is_a_commit,
            scans_are_ordered_both_ways_within_bounds_and_limits,
            scans_merge_old_and_new,
            scans_page_through_everything_once,
            events_come_in_commit_order,
            an_event_reader_goes_on_after_the_end,
            an_expired_cursor_is_told_so,
            a_read_after_an_event_sees_its_commit,
            who_asked_is_told_of_commits,
        );
    };
    ($fixture:expr, $($check:ident),+ $(,)?) => {
        $(
            #[test]
            fn $check() {
                let mut fixture = $fixture;
                $crate::conformance::$check(&mut fixture);
            }
        )+
    };
}

const SHARD: ShardId = ShardId(0);
const NODE: NodeId = NodeId(7);

/// A shard that this test owns.
fn open(fixture: &dyn Fixture, shard: ShardId) -> Epoch {
    fixture.store().open_shard(shard, NODE).expect("a shard can be opened")
}

fn commit(fixture: &dyn Fixture, epoch: Epoch, write: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    write(&mut batch);
    fixture.store().commit(SHARD, epoch, &batch).expect("the owner can commit");
}

fn get(fixture: &dyn Fixture, keyspace: Keyspace, key: &[u8]) -> Option<Bytes> {
    fixture.store().get(SHARD, keyspace, key).expect("a key can be read")
}

fn scan(fixture: &dyn Fixture, range: Range, order: Order, limit: usize) -> Vec<(Key, Bytes)> {
    fixture.store().scan(SHARD, Keyspace::Live, range, order, limit).expect("a range can be read")
}

/// The keys of a scan, as text.
fn keys(found: &[(Key, Bytes)]) -> String {
    found.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>().join(" ")
}
