//! Fault injection of the model store.

use model::batch::{Batch, Keyspace};
use store::{Error, Fault, ModelStore, ShardOwner, Store};

use crate::support::{OWNER, SHARD};

#[test]
fn each_fault_has_its_documented_effect() {
    let faults = [
        (Fault::None, true, true),
        (Fault::Refuse, false, false),
        (Fault::LandsButErrors, false, true),
        (Fault::Torn { lands: true }, false, true),
        (Fault::Torn { lands: false }, false, false),
        (Fault::Late, false, false),
    ];
    for (fault, acknowledged, lands) in faults {
        let store = ModelStore::new();
        let mut token = store.take_over(SHARD, OWNER).unwrap();
        let before = store.newest_cursor().unwrap();
        store.plan_faults(move |_, _| fault);
        let mut batch = Batch::new();
        batch.put(Keyspace::Live, b"one", b"1");
        batch.put(Keyspace::Live, b"two", b"2");
        let result = store.commit(&mut token, &batch);
        assert_eq!(result.is_ok(), acknowledged, "{fault:?}");
        assert!(acknowledged || matches!(result, Err(Error::Failed { .. })));
        assert_eq!(store.get(SHARD, Keyspace::Live, b"one").unwrap().is_some(), lands, "{fault:?}");
        assert_eq!(store.get(SHARD, Keyspace::Live, b"two").unwrap().is_some(), lands, "{fault:?}");
        assert_eq!(store.newest_cursor().unwrap() != before, lands);
        store.heal();
        // An owner that does not know its last commit's outcome cannot go on at a guess.
        assert_eq!(store.commit(&mut token, &batch).is_ok(), acknowledged || !lands, "{fault:?}");
    }
}

#[test]
fn a_late_commit_lands_unless_the_shard_has_moved_on() {
    for (opened, committed) in [(false, false), (true, false), (false, true)] {
        let store = ModelStore::new();
        let mut token = store.take_over(SHARD, OWNER).unwrap();
        store.plan_faults(|_, _| Fault::Late);
        let mut batch = Batch::new();
        batch.put(Keyspace::Live, b"late", b"1");
        assert!(store.commit(&mut token, &batch).is_err());
        store.heal();
        if opened {
            store.take_over(SHARD, ShardOwner { nonce: 2, ..OWNER }).unwrap();
        }
        if committed {
            store.commit(&mut token, &Batch::new()).unwrap();
        }
        let late = store.land_late().unwrap();
        assert_eq!(late.is_ok(), !opened && !committed);
        assert_eq!(store.get(SHARD, Keyspace::Live, b"late").unwrap().is_some(), late.is_ok());
        assert!(store.land_late().is_none(), "it arrives once");
    }
}

#[test]
fn reads_fail_as_planned() {
    let store = ModelStore::new();
    store.plan_read_faults(|| true);
    assert!(matches!(store.get(SHARD, Keyspace::Live, b"key"), Err(Error::Failed { .. })));
    assert!(store.scan(SHARD, Keyspace::Live, store::Range::all(), store::Order::Ascending, 1).is_err());
    assert!(store.document("name").is_err() && store.newest_epoch(SHARD).is_err());
    store.heal();
    assert_eq!(store.get(SHARD, Keyspace::Live, b"key").unwrap(), None);
}

#[test]
fn a_fault_does_not_bypass_fencing() {
    let store = ModelStore::new();
    let mut old = store.take_over(SHARD, OWNER).unwrap();
    let new = store.take_over(SHARD, ShardOwner { nonce: 2, ..OWNER }).unwrap();
    store.plan_faults(|_, _| Fault::LandsButErrors);
    let mut batch = Batch::new();
    batch.put(Keyspace::Live, b"key", b"stale");
    assert!(matches!(store.commit(&mut old, &batch), Err(Error::Fenced { .. })));
    assert_eq!(store.get(SHARD, Keyspace::Live, b"key").unwrap(), None);
    assert_eq!(store.owner(SHARD), Some((new.epoch, OWNER.node)));
}
