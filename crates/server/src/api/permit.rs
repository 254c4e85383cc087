//! Limits of concurrent readers: logs, audit log, events.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{ProblemKind, Refused};

/// A limited number of permits.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    semaphore: Arc<Semaphore>,
    max: usize,
}

/// A permit, until it is dropped.
pub(crate) type Permit = OwnedSemaphorePermit;

impl Permits {
    pub fn new(max: usize) -> Self {
        Self { semaphore: Arc::new(Semaphore::new(max)), max }
    }

    pub fn acquire(&self) -> Result<Permit, Refused> {
        let detail = || format!("the limit of {} concurrent readers is reached: retry in a moment", self.max);
        let permit = self.semaphore.clone().try_acquire_owned();
        permit.map_err(|_| Refused::detailed(ProblemKind::TooManySubscribers, detail()))
    }

    /// Number of permits in use.
    pub fn in_use(&self) -> usize {
        self.max - self.semaphore.available_permits()
    }
}
