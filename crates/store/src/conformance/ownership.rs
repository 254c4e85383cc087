//! Checks of ownership: one owner at a time, whose commits follow one another.

use model::batch::{Batch, Keyspace};
use model::id::Epoch;

use super::{Fixture, SHARD, get, new_owner, open};
use crate::{Error, FencingToken, Position};

pub fn only_the_newest_owner_commits(fixture: &mut dyn Fixture) {
    let store = fixture.store();
    let mut batch = Batch::new();
    batch.put(Keyspace::Live, b"key", b"old owner");
    assert_eq!(store.newest_epoch(SHARD).expect("readable"), Epoch(0), "never opened");
    let mut forged = FencingToken { shard: SHARD, epoch: Epoch(0), nonce: 0, position: Position::NONE };
    let never_opened = store.commit(&mut forged, &batch);
    assert!(matches!(never_opened, Err(Error::Fenced { .. })), "a shard that was never opened accepts no commit");

    let mut old = open(fixture, SHARD);
    store.commit(&mut old, &batch).expect("the owner can commit");
    store.confirm(&old).expect("the owner is confirmed");
    let new = open(fixture, SHARD);
    assert!(new.epoch > old.epoch, "epochs grow");
    assert_eq!(store.newest_epoch(SHARD).expect("readable"), new.epoch);
    let superseded = store.confirm(&old);
    assert!(
        matches!(superseded, Err(Error::Fenced { stale, current, .. }) if stale == old.epoch && current == new.epoch)
    );
    store.confirm(&new).expect("the new owner is confirmed");

    batch.put(Keyspace::Live, b"key", b"a stale write");
    old.position = new.position;
    let refused = store.commit(&mut old, &batch);
    assert!(matches!(refused, Err(Error::Fenced { stale, current, .. }) if stale == old.epoch && current == new.epoch));
    let mut invented = FencingToken { epoch: Epoch(new.epoch.0 + 1), ..new };
    let refused = store.commit(&mut invented, &batch);
    assert!(matches!(refused, Err(Error::Fenced { .. })), "an epoch that was never issued is rejected");
    assert_eq!(get(fixture, Keyspace::Live, b"key").as_deref(), Some(&b"old owner"[..]), "nothing was written");
}

pub fn epochs_increase_across_reopening(fixture: &mut dyn Fixture) {
    let mut last = open(fixture, SHARD);
    for flushed in [false, true, false] {
        if flushed {
            fixture.flush();
        }
        fixture.reopen();
        assert_eq!(fixture.store().newest_epoch(SHARD).expect("readable"), last.epoch);
        let next = open(fixture, SHARD);
        assert!(next.epoch > last.epoch && next.position > last.position, "epochs and positions increase");
        let refused = fixture.store().commit(&mut last, &Batch::new());
        assert!(matches!(refused, Err(Error::Fenced { .. })));
        last = next;
    }
}

pub fn opening_compares_the_epoch(fixture: &mut dyn Fixture) {
    let store = fixture.store();
    let seen = store.newest_epoch(SHARD).expect("readable");
    let first = store.open_shard(SHARD, new_owner(), seen).expect("the epoch is the expected one");
    let second = store.open_shard(SHARD, new_owner(), seen);
    assert!(matches!(second, Err(Error::Fenced { .. })), "of two that saw the same epoch one wins");
    store.confirm(&first).expect("the winner owns the shard");
    let ahead = store.open_shard(SHARD, new_owner(), Epoch(first.epoch.0 + 1));
    assert!(matches!(ahead, Err(Error::Fenced { .. })), "an epoch in the future is rejected");
}

/// The answer to an opening may be lost. The same opening again is no other owner.
pub fn a_repeated_opening_is_the_same_one(fixture: &mut dyn Fixture) {
    let store = fixture.store();
    let (owner, seen) = (new_owner(), store.newest_epoch(SHARD).expect("readable"));
    let first = store.open_shard(SHARD, owner, seen).expect("a shard can be opened");
    let again = store.open_shard(SHARD, owner, seen).expect("the same opening");
    assert_eq!(first, again);
    open(fixture, SHARD);
    assert!(matches!(store.open_shard(SHARD, owner, seen), Err(Error::Fenced { .. })), "superseded meanwhile");
}

pub fn owners_of_one_epoch_differ_by_their_nonce(fixture: &mut dyn Fixture) {
    let token = open(fixture, SHARD);
    let mut other = FencingToken { nonce: token.nonce ^ 1, ..token.clone() };
    assert!(matches!(fixture.store().confirm(&other), Err(Error::Fenced { .. })));
    assert!(matches!(fixture.store().commit(&mut other, &Batch::new()), Err(Error::Fenced { .. })));
    fixture.store().confirm(&token).expect("the owner is confirmed");
}

pub fn a_commit_follows_the_last_one(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    let mut delayed = token.clone();
    fixture.store().commit(&mut token, &Batch::new()).expect("the owner can commit");
    let mut batch = Batch::new();
    batch.put(Keyspace::Live, b"key", b"late");
    let rejected = fixture.store().commit(&mut delayed, &batch);
    assert!(matches!(rejected, Err(Error::Diverged { found, .. }) if found == token.position));
    assert_eq!(get(fixture, Keyspace::Live, b"key"), None, "nothing was written");
    let unconfirmed = fixture.store().confirm(&delayed);
    assert!(matches!(unconfirmed, Err(Error::Diverged { .. })), "an owner that lacks a commit must not answer");
    fixture.store().confirm(&token).expect("the owner is confirmed");
    fixture.store().commit(&mut token, &batch).expect("the owner can commit");
}
