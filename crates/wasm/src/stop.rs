//! Tells a run to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The end of a run, as its owner wishes; cheap to clone. Once stopped, always stopped.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    told: Notify,
}

impl Stop {
    pub fn new() -> Self {
        Self::default()
    }

    /// The run ends soon, with [`Verdict::Stopped`](crate::Verdict::Stopped), unless it ended by itself in the meantime.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }

    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Returns when it is stopped.
    pub(crate) async fn stopped(&self) {
        let mut told = std::pin::pin!(self.0.told.notified());
        // Listening begins before looking: a stop in between is not missed.
        told.as_mut().enable();
        if !self.is_stopped() {
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_is_heard_whether_it_comes_before_or_after_listening() {
        let stop = Stop::new();
        let listener = tokio::spawn({
            let stop = stop.clone();
            async move { stop.stopped().await }
        });
        tokio::task::yield_now().await;
        stop.stop();
        listener.await.unwrap();
        stop.stopped().await;
        assert!(stop.is_stopped());
    }
}
