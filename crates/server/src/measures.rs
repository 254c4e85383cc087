//! Histograms and counters for `/metrics` that are not part of the shards' own statistics.
//!
//! All values are atomics: observations take no lock.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Upper bounds of the histogram buckets, in microseconds.
pub(crate) const BOUNDS_MICROS: [u64; 14] =
    [10, 50, 100, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 30_000_000];

/// Histogram of durations.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU64::new(0)), sum_nanos: AtomicU64::new(0) }
    }
}

/// Values of a histogram at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Snapshot {
    /// Count per bucket, not cumulative. The last bucket has no upper bound.
    pub counts: [u64; BOUNDS_MICROS.len() + 1],
    pub sum: Duration,
}

impl Snapshot {
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }
}

impl Histogram {
    pub fn observe(&self, duration: Duration) {
        let within = |bound: &u64| duration <= Duration::from_micros(*bound);
        let bucket = BOUNDS_MICROS.iter().position(within).unwrap_or(BOUNDS_MICROS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Runs `work` and observes its duration.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.observe(start.elapsed());
        done
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            counts: array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)),
        }
    }
}

/// Result of reloading the rules after their files changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reload {
    Changed,
    /// Same content as before.
    Unchanged,
    /// Invalid rules; the previous ones stay in force.
    Refused,
}

impl Reload {
    pub const ALL: [Self; 3] = [Self::Changed, Self::Unchanged, Self::Refused];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

/// Measurements of policy decisions about jobs and results.
#[derive(Debug, Default)]
pub(crate) struct PolicyMeasures {
    /// Duration of decisions about jobs, by rules or policy service.
    pub decisions: Histogram,
    /// Duration of metadata checks.
    pub metadata: Histogram,
    /// Duration of content scans.
    pub content: Histogram,
    reloads: [AtomicU64; Reload::ALL.len()],
}

impl PolicyMeasures {
    pub fn count_reload(&self, reload: Reload) {
        self.reloads[reload as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn reloads(&self, reload: Reload) -> u64 {
        self.reloads[reload as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for nanos in [0, 10_000, 10_001, 30_000_000_000, 30_000_000_001] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let Snapshot { counts, sum } = histogram.snapshot();
        assert_eq!((counts[0], counts[1]), (2, 1));
        assert_eq!(counts[BOUNDS_MICROS.len() - 1..], [1, 1]);
        assert_eq!(sum, Duration::from_nanos(60_000_020_002));
        assert!(BOUNDS_MICROS.is_sorted());
    }

    #[test]
    fn timed_work_runs_once_and_is_observed_once() {
        let histogram = Histogram::default();
        assert_eq!(histogram.time(|| 7), 7);
        let mut twice = histogram.snapshot();
        assert_eq!(twice.counts.iter().sum::<u64>(), 1);
        twice.merge(&histogram.snapshot());
        assert_eq!(twice.counts.iter().sum::<u64>(), 2);
    }

    #[test]
    fn reloads_are_counted_by_result() {
        let measures = PolicyMeasures::default();
        measures.count_reload(Reload::Refused);
        assert_eq!(Reload::ALL.map(|reload| measures.reloads(reload)), [0, 0, 1]);
    }
}
