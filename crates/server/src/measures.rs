//! How long things take and how often they happen, counted by whoever does them, for `/metrics`.
//!
//! Only what the shards do not count themselves. Everything is an atomic number: to measure takes no lock.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Up to which length durations are counted together, in microseconds.
pub(crate) const BOUNDS_MICROS: [u64; 14] =
    [10, 50, 100, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 30_000_000];

/// Durations, counted by their length.
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

/// What a histogram has counted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Snapshot {
    /// Those up to the bound of the same place and beyond the one before; the last are beyond all bounds.
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
        let place = BOUNDS_MICROS.iter().position(within).unwrap_or(BOUNDS_MICROS.len());
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Does something and counts how long it took.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.observe(began.elapsed());
        done
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            counts: array::from_fn(|place| self.counts[place].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)),
        }
    }
}

/// What came of a look at the rules' files after they had changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reload {
    Changed,
    /// They say what they said before.
    Unchanged,
    /// They cannot be used.
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

/// What is measured of the policy, on the way in and on the way out.
#[derive(Debug, Default)]
pub(crate) struct PolicyMeasures {
    /// The rules' or the kernel's answers about jobs.
    pub decisions: Histogram,
    /// Looks at what is known about a result.
    pub metadata: Histogram,
    /// Looks at results themselves.
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
    fn a_duration_is_counted_at_the_first_bound_that_it_does_not_exceed() {
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
    fn what_is_timed_is_done_and_counted_once() {
        let histogram = Histogram::default();
        assert_eq!(histogram.time(|| 7), 7);
        let mut twice = histogram.snapshot();
        assert_eq!(twice.counts.iter().sum::<u64>(), 1);
        twice.merge(&histogram.snapshot());
        assert_eq!(twice.counts.iter().sum::<u64>(), 2);
    }

    #[test]
    fn reloads_are_counted_by_what_came_of_them() {
        let measures = PolicyMeasures::default();
        measures.count_reload(Reload::Refused);
        assert_eq!(Reload::ALL.map(|reload| measures.reloads(reload)), [0, 0, 1]);
    }
}
