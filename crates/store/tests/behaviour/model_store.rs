//! Fault injection of the model store.

use model::batch::{Batch, Keyspace};
use model::id::NodeId;
use store::{Error, Fault, ModelStore, Store};

use crate::support::SHARD;

#[test]
fn each_fault_has_its_documented_effect() {
    let faults = [
        (Fault::None, true, true),
        (Fault::Refuse, false, false),
        (Fault::LandsButErrors, false, true),
        (Fault::Torn { lands: true }, false, true),
        (Fault::Torn { lands: false }, false, false),
    ];
    for (fault, acknowledged, lands) in faults {
        let store = ModelStore::new();
        let epoch = store.open_shard(SHARD, NodeId(1)).unwrap();
        let before = store.durable();
        store.plan_faults(move |_, _| fault);
        let mut batch = Batch::new();
        batch.put(Keyspace::Live, b"one", b"1");
        batch.put(Keyspace::Live, b"two", b"2");
        let result = store.commit(SHARD, epoch, &batch);
        assert_eq!(result.is_ok(), acknowledged, "{fault:?}");
        assert!(acknowledged || matches!(result, Err(Error::Failed { .. })));
        assert_eq!(store.get(SHARD, Keyspace::Live, b"one").unwrap().is_some(), lands, "{fault:?}");
        assert_eq!(store.get(SHARD, Keyspace::Live, b"two").unwrap().is_some(), lands, "{fault:?}");
        assert_eq!(store.durable() > before, lands);
        store.heal();
        store.commit(SHARD, epoch, &batch).unwrap();
    }
}

#[test]
fn a_fault_does_not_bypass_fencing() {
    let store = ModelStore::new();
    let old = store.open_shard(SHARD, NodeId(1)).unwrap();
    let new = store.open_shard(SHARD, NodeId(2)).unwrap();
    store.plan_faults(|_, _| Fault::LandsButErrors);
    let mut batch = Batch::new();
    batch.put(Keyspace::Live, b"key", b"stale");
    assert!(matches!(store.commit(SHARD, old, &batch), Err(Error::Fenced { .. })));
    assert_eq!(store.get(SHARD, Keyspace::Live, b"key").unwrap(), None);
    assert_eq!(store.owner(SHARD), Some((new, NodeId(2))));
}
