//! The line in front of the kernel: so many at once, so many behind them, and nobody waits too long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

#[derive(Debug)]
pub(crate) struct Line {
    places: Semaphore,
    in_flight_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// Why somebody did not get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// Too many wait already.
    Full,
    /// Waited for as long as allowed.
    TooLong,
}

impl Line {
    pub(crate) fn new(in_flight_max: usize, waiting_max: usize) -> Self {
        Self { places: Semaphore::new(in_flight_max), in_flight_max, waiting: AtomicUsize::new(0), waiting_max }
    }

    /// A place, as long as what is returned lives.
    pub(crate) async fn place(&self, patience: Duration) -> Result<SemaphorePermit<'_>, TurnedAway> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        let _waiting = Waiting::enter(self).ok_or(TurnedAway::Full)?;
        match tokio::time::timeout(patience, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            // Nobody closes the semaphore.
            Ok(Err(_)) | Err(_) => Err(TurnedAway::TooLong),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight_max.saturating_sub(self.places.available_permits())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Counts one who waits, also when he gives up.
struct Waiting<'a>(&'a Line);

impl<'a> Waiting<'a> {
    fn enter(line: &'a Line) -> Option<Self> {
        let before = line.waiting.fetch_add(1, Ordering::Relaxed);
        let entered = Self(line);
        (before < line.waiting_max).then_some(entered)
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
    async fn so_many_get_a_place_and_the_next_waits_until_one_leaves() {
        let line = Line::new(2, 1);
        let first = line.place(LONG).await.unwrap();
        let _second = line.place(LONG).await.unwrap();
        assert_eq!((line.in_flight(), line.waiting()), (2, 0));
        let mut third = Box::pin(line.place(LONG));
        assert!(poll_once(&mut third).await.is_none());
        assert_eq!((line.in_flight(), line.waiting()), (2, 1));
        drop(first);
        assert!(third.await.is_ok());
        assert_eq!(line.waiting(), 0);
    }

    #[tokio::test]
    async fn who_comes_when_too_many_wait_is_turned_away_at_once() {
        let line = Line::new(1, 1);
        let _first = line.place(LONG).await.unwrap();
        let mut second = Box::pin(line.place(LONG));
        assert!(poll_once(&mut second).await.is_none());
        assert_eq!(line.place(LONG).await.err(), Some(TurnedAway::Full));
        drop(second);
        assert_eq!(line.waiting(), 0, "who gives up waits no more");
    }

    #[tokio::test]
    async fn nobody_waits_longer_than_allowed() {
        let line = Line::new(1, 1);
        let _first = line.place(LONG).await.unwrap();
        assert_eq!(line.place(Duration::from_millis(1)).await.err(), Some(TurnedAway::TooLong));
        assert_eq!(line.waiting(), 0);
    }

    /// Lets a future go as far as it can right now.
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
