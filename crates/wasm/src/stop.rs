//! Stop signal of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Stop signal of a run. Cheap to clone; clones share the signal. It cannot be reset.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    notify: Notify,
}

impl Stop {
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the run soon, with [`GuestExit::Stopped`](crate::GuestExit::Stopped) unless it ends by itself before.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Waits for the signal.
    pub(crate) async fn stopped(&self) {
        let mut notified = std::pin::pin!(self.0.notify.notified());
        // Enabled before the check, so that a stop in between is not missed.
        notified.as_mut().enable();
        if !self.is_stopped() {
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_before_or_during_the_wait_ends_it() {
        let stop = Stop::new();
        let waiter = tokio::spawn({
            let stop = stop.clone();
            async move { stop.stopped().await }
        });
        tokio::task::yield_now().await;
        stop.stop();
        waiter.await.unwrap();
        stop.stopped().await;
        assert!(stop.is_stopped());
    }
}
