//! Admission queue: bounds the calls in flight, the calls that wait, and the time they wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

#[derive(Debug)]
pub(crate) struct AdmissionQueue {
    permits: Semaphore,
    in_flight_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// Why a call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// Too many calls wait already.
    Full,
    /// Waited for the maximum time.
    TimedOut,
}

impl AdmissionQueue {
    pub(crate) fn new(in_flight_max: usize, waiting_max: usize) -> Self {
        Self { permits: Semaphore::new(in_flight_max), in_flight_max, waiting: AtomicUsize::new(0), waiting_max }
    }

    /// Waits for a permit for at most `timeout`.
    pub(crate) async fn acquire(&self, timeout: Duration) -> Result<SemaphorePermit<'_>, Rejected> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        let _waiting = Waiting::enter(self).ok_or(Rejected::Full)?;
        match tokio::time::timeout(timeout, self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Rejected::TimedOut),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight_max.saturating_sub(self.permits.available_permits())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Counts a waiting call until it is admitted, rejected or dropped.
struct Waiting<'a>(&'a AdmissionQueue);

impl<'a> Waiting<'a> {
    fn enter(queue: &'a AdmissionQueue) -> Option<Self> {
        let before = queue.waiting.fetch_add(1, Ordering::Relaxed);
        let entered = Self(queue);
        (before < queue.waiting_max).then_some(entered)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn calls_beyond_the_limit_wait_until_one_ends() {
        let queue = AdmissionQueue::new(2, 1);
        let first = queue.acquire(LONG).await.unwrap();
        let _second = queue.acquire(LONG).await.unwrap();
        assert_eq!((queue.in_flight(), queue.waiting()), (2, 0));
        let mut third = Box::pin(queue.acquire(LONG));
        assert!(poll_once(&mut third).await.is_none());
        assert_eq!((queue.in_flight(), queue.waiting()), (2, 1));
        drop(first);
        assert!(third.await.is_ok());
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test]
    async fn a_call_is_rejected_at_once_while_the_queue_is_full() {
        let queue = AdmissionQueue::new(1, 1);
        let _first = queue.acquire(LONG).await.unwrap();
        let mut second = Box::pin(queue.acquire(LONG));
        assert!(poll_once(&mut second).await.is_none());
        assert_eq!(queue.acquire(LONG).await.err(), Some(Rejected::Full));
        drop(second);
        assert_eq!(queue.waiting(), 0, "a dropped call still counts as waiting");
    }

    #[tokio::test]
    async fn a_call_waits_no_longer_than_its_timeout() {
        let queue = AdmissionQueue::new(1, 1);
        let _first = queue.acquire(LONG).await.unwrap();
        assert_eq!(queue.acquire(Duration::from_millis(1)).await.err(), Some(Rejected::TimedOut));
        assert_eq!(queue.waiting(), 0);
    }

    /// Polls a future once.
    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
