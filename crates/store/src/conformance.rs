//! Conformance suite for implementations of [`Store`]. Their tests provide a [`Fixture`] and call
//! [`conformance_tests!`](crate::conformance_tests), which generates one test per check.
//!
//! Checks panic with a description of the violated guarantee.

mod commits;
mod documents;
mod events;
mod ownership;
mod scans;

pub use commits::*;
pub use documents::*;
pub use events::*;
pub use ownership::*;
pub use scans::*;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use model::batch::{Batch, Keyspace};
use model::id::{NodeId, ShardId};

use crate::{FencingToken, Key, Order, Range, ShardOwner, Store};

/// A store under test, with operations specific to its implementation.
pub trait Fixture {
    fn store(&self) -> &dyn Store;

    /// Simulates a restart of the process that uses the store.
    fn reopen(&mut self);

    /// Flushes recent commits from memory to the tables, if the store has such a difference.
    fn flush(&self);

    /// Expires old events, so that a cursor at the beginning is no longer valid.
    fn expire_events(&mut self);
}

/// Generates one test per check, each with its own fixture.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture,
            only_the_newest_owner_commits,
            epochs_increase_across_reopening,
            opening_compares_the_epoch,
            a_repeated_opening_is_the_same_one,
            owners_of_one_epoch_differ_by_their_nonce,
            a_commit_follows_the_last_one,
            a_batch_becomes_visible_atomically,
            a_read_sees_all_earlier_commits,
            later_writes_and_deletes_win,
            reopening_loses_nothing,
            shards_are_isolated,
            shards_commit_concurrently,
            an_empty_batch_is_a_commit,
            scans_respect_order_bounds_and_limit,
            scans_merge_flushed_and_recent_data,
            pagination_returns_every_key_once,
            many_keys_are_read_in_their_order,
            events_are_in_commit_order,
            an_event_reader_returns_whole_batches,
            an_event_reader_continues_after_the_end,
            an_expired_cursor_is_rejected,
            a_cursor_of_another_store_is_rejected,
            a_read_after_an_event_sees_its_commit,
            commit_hooks_are_called,
            a_document_changes_by_compare_and_set,
            documents_survive_reopening,
            documents_have_limits,
            one_of_many_concurrent_writers_wins,
            a_lease_has_one_holder,
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

/// An owner that no other call returns.
fn new_owner() -> ShardOwner {
    static NONCES: AtomicU64 = AtomicU64::new(1);
    ShardOwner { node: NodeId(7), nonce: NONCES.fetch_add(1, Ordering::Relaxed) }
}

/// Opens a shard for a new owner.
fn open(fixture: &dyn Fixture, shard: ShardId) -> FencingToken {
    fixture.store().take_over(shard, new_owner()).expect("a shard can be opened")
}

fn commit(fixture: &dyn Fixture, token: &mut FencingToken, write: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    write(&mut batch);
    fixture.store().commit(token, &batch).expect("the owner can commit");
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
