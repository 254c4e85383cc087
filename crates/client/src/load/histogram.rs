//! Latency histogram with logarithmic buckets: small, fast to fill, relative error below one percent.

use std::time::Duration;

/// Log2 of the number of buckets per power of two.
const DIVISION_BITS: u32 = 7;
const DIVISIONS: u64 = 1 << DIVISION_BITS;
/// Latencies above this value (19 hours) are counted as this value.
const MICROS_MAX: u64 = (1 << 36) - 1;
const BUCKETS: usize = bucket_of(MICROS_MAX) + 1;

/// Counts per latency bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_micros: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max_micros: 0 }
    }
}

impl Histogram {
    /// Counts `latency` `times` times: once for each job of a batch.
    pub fn record(&mut self, latency: Duration, times: u64) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(MICROS_MAX).min(MICROS_MAX);
        self.counts[bucket_of(micros)] += times;
        self.total += times;
        if times > 0 {
            self.max_micros = self.max_micros.max(micros);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max_micros = self.max_micros.max(other.max_micros);
    }

    /// Number of recorded latencies.
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn max(&self) -> Duration {
        Duration::from_micros(self.max_micros)
    }

    /// Latency at the quantile `fraction`; zero for an empty histogram.
    pub fn quantile(&self, fraction: f64) -> Duration {
        let rank = ((self.total as f64) * fraction.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_micros(top_of(bucket).min(self.max_micros));
            }
        }
        self.max()
    }
}

const fn bucket_of(micros: u64) -> usize {
    if micros < DIVISIONS {
        return micros as usize;
    }
    let shift = 63 - micros.leading_zeros() - DIVISION_BITS;
    (((shift as u64 + 1) << DIVISION_BITS) + (micros >> shift) - DIVISIONS) as usize
}

/// The largest value of a bucket.
fn top_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < DIVISIONS {
        return bucket;
    }
    let shift = (bucket >> DIVISION_BITS) - 1;
    let steps = (bucket & (DIVISIONS - 1)) + DIVISIONS;
    ((steps + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_of_known_values() {
        let mut histogram = Histogram::default();
        for millis in 1..=100 {
            histogram.record(Duration::from_millis(millis), 1);
        }
        let near = |fraction: f64, millis: f64| {
            let error = histogram.quantile(fraction).as_secs_f64() * 1000.0 / millis - 1.0;
            assert!((0.0..0.01).contains(&error), "{fraction}: {:?}", histogram.quantile(fraction));
        };
        near(0.5, 50.0);
        near(0.99, 99.0);
        assert_eq!(histogram.quantile(1.0), Duration::from_millis(100));
        assert_eq!(histogram.max(), Duration::from_millis(100));
    }

    #[test]
    fn empty_and_saturated_histograms_have_defined_quantiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        histogram.record(Duration::MAX, 1);
        assert_eq!(histogram.max(), Duration::from_micros(MICROS_MAX));
        let mut both = Histogram::default();
        both.record(Duration::from_micros(3), 9);
        both.merge(&histogram);
        assert_eq!(both.total(), 10);
        assert_eq!(both.quantile(0.9), Duration::from_micros(3));
    }

    proptest! {
        #[test]
        fn every_value_is_within_its_bucket(micros in 0..=MICROS_MAX) {
            let bucket = bucket_of(micros);
            prop_assert!(bucket < BUCKETS);
            prop_assert!(top_of(bucket) >= micros);
            prop_assert!(bucket == 0 || top_of(bucket - 1) < micros);
            prop_assert!((top_of(bucket) - micros) as f64 <= micros as f64 / DIVISIONS as f64);
        }
    }
}
