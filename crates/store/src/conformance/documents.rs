//! Checks of documents and leases.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Fixture;
use crate::{DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, Error, Version};

pub fn a_document_changes_by_compare_and_set(fixture: &mut dyn Fixture) {
    let store = fixture.store();
    let changed = |result| matches!(result, Err(Error::DocumentChanged { .. }));
    assert_eq!(store.document("nodes").expect("readable"), None);
    assert!(changed(store.put_document("nodes", Version(1), Some(b"x"))), "it does not exist");
    let first = store.put_document("nodes", Version::NONE, Some(b"one")).expect("written");
    assert!(changed(store.put_document("nodes", Version::NONE, Some(b"x"))), "it exists");
    let second = store.put_document("nodes", first, Some(b"")).expect("written");
    assert!(second > first);
    assert!(changed(store.put_document("nodes", first, Some(b"x"))));
    for flushed in [false, true] {
        if flushed {
            fixture.flush();
        }
        let document = store.document("nodes").expect("readable").expect("it exists");
        assert_eq!((document.version, &document.value[..]), (second, &b""[..]));
    }
    assert!(changed(store.put_document("nodes", first, None)));
    assert_eq!(store.put_document("nodes", second, None).expect("deleted"), Version::NONE);
    assert_eq!(store.document("nodes").expect("readable"), None);
    let third = store.put_document("nodes", Version::NONE, Some(b"again")).expect("written");
    assert!(third > second, "versions are never used again");
}

pub fn documents_survive_reopening(fixture: &mut dyn Fixture) {
    let kept = fixture.store().put_document("kept", Version::NONE, Some(b"value")).expect("written");
    let gone = fixture.store().put_document("gone", Version::NONE, Some(b"value")).expect("written");
    fixture.flush();
    fixture.store().put_document("gone", gone, None).expect("deleted");
    for _ in 0..2 {
        fixture.reopen();
        let document = fixture.store().document("kept").expect("readable").expect("it exists");
        assert_eq!((document.version, &document.value[..]), (kept, &b"value"[..]));
        assert_eq!(fixture.store().document("gone").expect("readable"), None);
        fixture.flush();
    }
}

pub fn documents_have_limits(fixture: &mut dyn Fixture) {
    let store = fixture.store();
    let longest = "n".repeat(DOCUMENT_NAME_BYTES_MAX);
    let largest = vec![7; DOCUMENT_BYTES_MAX];
    store.put_document(&longest, Version::NONE, Some(&largest)).expect("at the limits");
    assert_eq!(store.document(&longest).expect("readable").expect("it exists").value, largest);
    for name in ["", &format!("{longest}n")] {
        assert!(matches!(store.put_document(name, Version::NONE, Some(b"")), Err(Error::DocumentName { .. })));
        assert!(matches!(store.document(name), Err(Error::DocumentName { .. })));
    }
    let beyond = vec![7; DOCUMENT_BYTES_MAX + 1];
    assert!(matches!(store.put_document("large", Version::NONE, Some(&beyond)), Err(Error::TooLarge { .. })));
}

pub fn one_of_many_concurrent_writers_wins(fixture: &mut dyn Fixture) {
    let store = fixture.store();
    let won = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for writer in 0u8..4 {
            let won = &won;
            scope.spawn(move || {
                for _ in 0..25 {
                    let seen = store.document("leader").expect("readable").map_or(Version::NONE, |it| it.version);
                    match store.put_document("leader", seen, Some(&[writer])) {
                        Ok(_) => won.fetch_add(1, Ordering::Relaxed),
                        Err(Error::DocumentChanged { .. }) => 0,
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
    });
    let mut version = store.document("leader").expect("readable").expect("it exists").version;
    for _ in 0..won.load(Ordering::Relaxed) {
        version = store.put_document("leader", version, Some(b"after")).expect("the version is current");
    }
    assert!(won.load(Ordering::Relaxed) > 0);
}

pub fn a_lease_has_one_holder(fixture: &mut dyn Fixture) {
    let (store, long) = (fixture.store(), Duration::from_secs(3600));
    let acquire = |name, holder, time| store.acquire_lease(name, holder, time).expect("the store answers");
    assert!(acquire("leader", 1, long) && acquire("leader", 1, long), "acquired and extended");
    assert!(!acquire("leader", 2, long) && acquire("other", 2, long));
    store.release_lease("leader", 2).expect("the store answers");
    assert!(!acquire("leader", 2, long), "only its holder releases it");
    store.release_lease("leader", 1).expect("the store answers");
    assert!(acquire("leader", 2, Duration::ZERO), "released");
    assert!(acquire("leader", 3, long), "expired at once");
}
