//! Work that blocks, away from the threads that answer requests.
//!
//! Calls of the store block. A flag of the thread tells whether it may block; debug builds check it on every access to
//! the store.

use std::cell::Cell;
use std::sync::Arc;

use store::Store;

use super::problem::Refused;
use crate::error::Error;

thread_local! {
    static IS_ALLOWED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the current thread may block.
pub(crate) fn is_allowed() -> bool {
    IS_ALLOWED.get()
}

/// Restores the flag of the thread, also after a panic: threads are reused.
struct Restore {
    before: bool,
}

impl Drop for Restore {
    fn drop(&mut self) {
        IS_ALLOWED.set(self.before);
    }
}

/// Executes work that blocks on the current thread, which must not be an async thread.
pub(crate) fn allow<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Restore { before: IS_ALLOWED.replace(true) };
    work()
}

/// Executes work that blocks on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    let done = tokio::task::spawn_blocking(move || allow(work)).await;
    done.map_err(|error| Error::Panicked(error.to_string()))?
}

/// The store, for threads that may block.
pub(crate) struct BlockingStore(Arc<dyn Store>);

impl BlockingStore {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    pub fn get(&self) -> &dyn Store {
        debug_assert!(is_allowed(), "the store is read on an async thread");
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocking_work_may_read_the_store() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            assert!(!is_allowed());
            assert!(blocking(|| Ok(is_allowed())).await.unwrap());
            let panics = || -> Result<(), Refused> { panic!("expected") };
            assert!(blocking(panics).await.is_err());
            assert!(!tokio::task::spawn_blocking(is_allowed).await.unwrap(), "the flag outlived the work");
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic = "the store is read on an async thread"]
    fn an_async_thread_does_not_get_the_store() {
        BlockingStore::new(Arc::new(store::ModelStore::default())).get();
    }

    #[test]
    fn nested_work_keeps_the_flag() {
        allow(|| {
            allow(|| {});
            assert!(is_allowed());
        });
        assert!(!is_allowed());
    }
}
