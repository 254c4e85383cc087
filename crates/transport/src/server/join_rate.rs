//! Limits on join requests: per address and second, and in progress.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::ServerOptions;
use crate::refusal::{Refusal, RefusalKind};

/// Addresses that are remembered. If there are more, those that have their whole burst left are forgotten.
const ADDRESSES_MAX: usize = 4096;

#[derive(Debug)]
struct Bucket {
    left: f64,
    filled_at: Instant,
}

#[derive(Debug)]
pub(super) struct JoinRate {
    burst: f64,
    per_sec: f64,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
    in_progress: Semaphore,
}

impl JoinRate {
    pub(super) fn new(options: &ServerOptions) -> Self {
        Self {
            burst: f64::from(options.join_burst),
            per_sec: f64::from(options.joins_per_sec),
            buckets: Mutex::default(),
            in_progress: Semaphore::new(options.joins_concurrent_max),
        }
    }

    /// Takes one request of the address.
    pub(super) fn take(&self, address: IpAddr, now: Instant) -> Result<(), Refusal> {
        let busy = || Refusal::new(RefusalKind::Busy, "too many nodes join at once: try again in a few seconds");
        let mut buckets = self.buckets.lock();
        let filled = |bucket: &Bucket| {
            let since = now.saturating_duration_since(bucket.filled_at).as_secs_f64();
            (bucket.left + since * self.per_sec).min(self.burst)
        };
        if buckets.len() >= ADDRESSES_MAX && !buckets.contains_key(&address) {
            buckets.retain(|_, bucket| filled(bucket) < self.burst);
            if buckets.len() >= ADDRESSES_MAX {
                return Err(busy());
            }
        }
        let bucket = buckets.entry(address).or_insert(Bucket { left: self.burst, filled_at: now });
        let left = filled(bucket);
        *bucket = Bucket { left: if left < 1.0 { left } else { left - 1.0 }, filled_at: now };
        if left < 1.0 { Err(busy()) } else { Ok(()) }
    }

    /// Waits for a place. The number of those who wait is bounded by the connections without a certificate.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.in_progress.acquire().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_has_a_burst_and_a_rate() {
        let rate = JoinRate::new(&ServerOptions { join_burst: 3, joins_per_sec: 2, ..ServerOptions::default() });
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(rate.take(one, start), Ok(()));
        }
        assert_eq!(rate.take(one, start).unwrap_err().kind(), RefusalKind::Busy);
        assert_eq!(rate.take(other, start), Ok(()));
        let later = start + Duration::from_millis(500);
        assert_eq!(rate.take(one, later), Ok(()));
        assert!(rate.take(one, later).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let rate = JoinRate::new(&ServerOptions { join_burst: 1, joins_per_sec: 1, ..ServerOptions::default() });
        let start = Instant::now();
        for number in 0..ADDRESSES_MAX as u32 {
            assert_eq!(rate.take(IpAddr::V4(number.into()), start), Ok(()));
        }
        let next = IpAddr::V4(u32::MAX.into());
        assert!(rate.take(next, start).is_err());
        assert_eq!(rate.take(next, start + Duration::from_secs(2)), Ok(()));
        assert_eq!(rate.buckets.lock().len(), 1);
    }
}
