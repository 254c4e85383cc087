//! Failover of a store that may lose acknowledged commits.

use std::time::Duration;

use model::batch::{Batch, Keyspace};
use model::id::{NodeId, ShardId};
use store::{Durability, Error, FencingToken, Lost, ModelStore, ShardOwner, Store, Version};

use crate::support::SHARD;

const OTHER: ShardId = ShardId(3);

fn owner(nonce: u64) -> ShardOwner {
    ShardOwner { node: NodeId(1), nonce }
}

fn put(store: &ModelStore, token: &mut FencingToken, key: &str, value: &str) {
    let mut batch = Batch::new();
    batch.put(Keyspace::Live, key.as_bytes(), value.as_bytes());
    batch.event_with(|buffer| buffer.extend_from_slice(value.as_bytes()));
    store.commit(token, &batch).unwrap();
}

fn get(store: &ModelStore, shard: ShardId, key: &str) -> Option<String> {
    let value = store.get(shard, Keyspace::Live, key.as_bytes()).unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// A store with three commits of the owner.
fn with_three_commits() -> (ModelStore, FencingToken) {
    let store = ModelStore::lossy();
    let mut token = store.take_over(SHARD, owner(1)).unwrap();
    for value in ["1", "2", "3"] {
        put(&store, &mut token, "key", value);
    }
    (store, token)
}

#[test]
fn the_class_says_whether_commits_may_be_lost() {
    assert_eq!(ModelStore::new().durability(), Durability::Durable);
    assert_eq!(ModelStore::lossy().durability(), Durability::MayLoseSuffix);
}

#[test]
#[should_panic(expected = "only a lossy store loses commits")]
fn a_durable_store_loses_nothing() {
    ModelStore::new().lose_suffix(Lost::All, 1);
}

#[test]
fn records_go_back_to_an_earlier_commit() {
    let (store, mut token) = with_three_commits();
    let mut batch = Batch::new();
    batch.put(Keyspace::Live, b"twice", b"a");
    batch.put(Keyspace::Live, b"twice", b"b");
    batch.delete(Keyspace::Live, b"key");
    store.commit(&mut token, &batch).unwrap();
    assert_eq!(store.lose_suffix(Lost::Shard(SHARD), 1), [SHARD]);
    assert_eq!((get(&store, SHARD, "key").as_deref(), get(&store, SHARD, "twice")), (Some("3"), None));
    assert_eq!(store.lose_suffix(Lost::Shard(SHARD), 2), [SHARD, SHARD]);
    assert_eq!(get(&store, SHARD, "key").as_deref(), Some("1"));
    assert_eq!(store.lose_suffix(Lost::All, 9), [SHARD], "and the opening");
    assert_eq!((get(&store, SHARD, "key"), store.owner(SHARD)), (None, None));
}

#[test]
fn one_shard_or_all_of_them_lose_commits() {
    let (store, _) = with_three_commits();
    let mut other = store.take_over(OTHER, owner(2)).unwrap();
    put(&store, &mut other, "key", "other");
    assert_eq!(store.lose_suffix(Lost::Shard(SHARD), 1), [SHARD]);
    assert_eq!(
        (get(&store, SHARD, "key").as_deref(), get(&store, OTHER, "key").as_deref()),
        (Some("2"), Some("other"))
    );
    assert_eq!(store.lose_suffix(Lost::All, 3), [OTHER, SHARD], "a commit, an opening, a commit");
    assert_eq!((get(&store, SHARD, "key").as_deref(), get(&store, OTHER, "key")), (Some("1"), None));
}

#[test]
fn the_position_reveals_lost_commits() {
    let (store, mut token) = with_three_commits();
    store.lose_suffix(Lost::Shard(SHARD), 1);
    assert!(matches!(store.confirm(&token), Err(Error::Diverged { .. })));
    assert!(matches!(store.commit(&mut token, &Batch::new()), Err(Error::Diverged { .. })));
    assert_eq!(get(&store, SHARD, "key").as_deref(), Some("2"), "nothing was written");
}

#[test]
fn an_owner_whose_opening_is_lost_is_fenced() {
    let (store, _) = with_three_commits();
    let mut second = store.take_over(SHARD, owner(2)).unwrap();
    put(&store, &mut second, "key", "4");
    store.lose_suffix(Lost::Shard(SHARD), 2);
    assert!(matches!(store.confirm(&second), Err(Error::Fenced { .. })));
    assert!(matches!(store.commit(&mut second, &Batch::new()), Err(Error::Fenced { .. })));
}

/// Runners and shards may know the owner that was lost. They would ignore the one before it.
#[test]
fn an_owner_that_lost_nothing_is_rejected_too() {
    let (store, mut first) = with_three_commits();
    store.take_over(SHARD, owner(2)).unwrap();
    store.lose_suffix(Lost::Shard(SHARD), 1);
    assert!(matches!(store.confirm(&first), Err(Error::FailedOver { .. })));
    assert!(matches!(store.commit(&mut first, &Batch::new()), Err(Error::FailedOver { .. })));
}

#[test]
fn a_lost_epoch_is_never_issued_again() {
    let (store, first) = with_three_commits();
    let mut issued = vec![first];
    for nonce in 2..8 {
        let expected = store.newest_epoch(SHARD).unwrap();
        let token = store.open_shard(SHARD, owner(nonce), expected).unwrap();
        assert!(issued.iter().all(|other| other.epoch < token.epoch), "{token:?} after {issued:?}");
        assert_eq!(store.open_shard(SHARD, owner(nonce), expected).unwrap(), token, "repeated");
        store.confirm(&token).unwrap();
        issued.push(token);
        if nonce % 2 == 0 {
            store.lose_suffix(Lost::Shard(SHARD), nonce as usize / 2);
        }
    }
    let newest = issued.pop().unwrap();
    store.confirm(&newest).unwrap();
    assert!(issued.iter().all(|token| store.confirm(token).is_err()));
}

#[test]
fn a_late_commit_of_before_is_refused() {
    let (store, mut token) = with_three_commits();
    store.plan_faults(|_, _| store::Fault::Late);
    assert!(store.commit(&mut token, &Batch::new()).is_err());
    store.lose_suffix(Lost::Shard(SHARD), 0);
    assert!(matches!(store.land_late(), Some(Err(Error::FailedOver { .. }))));
}

#[test]
fn cursors_of_before_are_rejected_instead_of_skipping_events() {
    let (store, _) = with_three_commits();
    let start = store.oldest_cursor().unwrap();
    let end = store.newest_cursor().unwrap();
    let mut reader = store.events(&start).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().events, ["1"]);
    store.lose_suffix(Lost::Shard(SHARD), 2);
    assert!(matches!(reader.next(), Err(Error::ForeignCursor)), "an open reader, too");
    for cursor in [&start, &end, &reader.cursor()] {
        assert!(matches!(store.events(cursor), Err(Error::ForeignCursor)));
    }
    let mut token = store.take_over(SHARD, owner(2)).unwrap();
    put(&store, &mut token, "key", "after");
    let mut reader = store.events(&store.oldest_cursor().unwrap()).unwrap();
    let events: Vec<_> = std::iter::from_fn(|| reader.next().unwrap()).flat_map(|committed| committed.events).collect();
    assert_eq!(events, ["1", "after"], "the lost commits are not in the log");
}

#[test]
fn a_version_of_a_lost_document_is_never_used_again() {
    let store = ModelStore::lossy();
    let kept = store.put_document("name", Version::NONE, Some(b"kept")).unwrap();
    let lost = store.put_document("name", kept, Some(b"lost")).unwrap();
    store.lose_suffix(Lost::All, 1);
    assert_eq!(&store.document("name").unwrap().unwrap().value[..], b"kept");
    let other = store.put_document("name", kept, Some(b"other")).unwrap();
    assert!(other > lost);
    assert!(matches!(store.put_document("name", lost, None), Err(Error::DocumentChanged { .. })));
}

#[test]
fn leases_go_back_too() {
    let store = ModelStore::lossy();
    let time = Duration::from_secs(9);
    assert!(store.acquire_lease("first", 1, time).unwrap() && store.acquire_lease("second", 1, time).unwrap());
    store.lose_suffix(Lost::All, 1);
    assert!(!store.acquire_lease("first", 2, time).unwrap(), "kept");
    assert!(store.acquire_lease("second", 2, time).unwrap(), "lost");
}
