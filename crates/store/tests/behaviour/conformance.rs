//! The conformance suite for the embedded store and the model store.

mod embedded {
    use model::batch::{Batch, Keyspace};
    use model::id::ShardId;
    use store::conformance::Fixture;
    use store::{Embedded, Store};

    use crate::support::{OWNER, eventually, open, small};

    struct OnDisk {
        directory: tempfile::TempDir,
        store: Option<Embedded>,
    }

    impl OnDisk {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let store = Some(open(directory.path()));
            Self { directory, store }
        }
    }

    impl Fixture for OnDisk {
        fn store(&self) -> &dyn Store {
            self.store.as_ref().unwrap()
        }

        fn reopen(&mut self) {
            drop(self.store.take());
            self.store = Some(open(self.directory.path()));
        }

        fn flush(&self) {
            self.store.as_ref().unwrap().flush().unwrap();
        }

        /// Reopens without retention, and writes until the journal recycles its first segment.
        fn expire_events(&mut self) {
            drop(self.store.take());
            let mut options = small();
            options.journal.keep_bytes = 0;
            let store = Embedded::open(self.directory.path(), options).unwrap();
            let mut token = store.take_over(ShardId(9), OWNER).unwrap();
            let mut batch = Batch::new();
            batch.put(Keyspace::Live, b"large", &[0; 40_000]);
            for _ in 0..4 {
                store.commit(&mut token, &batch).unwrap();
            }
            store.flush().unwrap();
            let first = store::Cursor::new(store.id(), vec![store::Position(1)]);
            eventually("expiry of old events", || store.events(&first).is_err());
            self.store = Some(store);
        }
    }

    store::conformance_tests!(OnDisk::new());
}

mod model_store {
    use store::conformance::Fixture;
    use store::{ModelStore, Store};

    struct InMemory(ModelStore);

    impl Fixture for InMemory {
        fn store(&self) -> &dyn Store {
            &self.0
        }

        fn reopen(&mut self) {
            self.0.crash();
        }

        fn flush(&self) {}

        fn expire_events(&mut self) {
            self.0.expire_events();
        }
    }

    store::conformance_tests!(InMemory(ModelStore::new()));

    mod lossy {
        use super::*;

        store::conformance_tests!(InMemory(ModelStore::lossy()));
    }

    mod after_a_failover {
        use super::*;

        fn failed_over() -> InMemory {
            let store = ModelStore::lossy();
            store.lose_suffix(store::Lost::All, 0);
            InMemory(store)
        }

        store::conformance_tests!(failed_over());
    }
}
