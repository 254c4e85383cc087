//! Exponential backoff with keyed jitter, for dispatch tries and policy checks. The backoff between retries of a job is
//! `model::machine::Backoff`.
//!
//! With jitter, jobs that failed together do not retry together, and no client can predict the moment of a retry. The
//! engine has no randomness: the shell provides a random key, and the jitter is a keyed hash.

use model::id::JobId;
use model::time::Millis;

const FIRST: Millis = Millis::from_secs(1);
const LONGEST: Millis = Millis::from_secs(30);
/// Upper bound of the jitter, exclusive.
const SPREAD_MS: u64 = 500;

/// The delay before the next try after `tries` earlier ones: one second, doubled each time up to 30 seconds, plus
/// jitter.
pub(crate) fn delay(key: &[u8; 32], job: JobId, tries: u32) -> Millis {
    let doubled = FIRST.0.saturating_mul(1 << tries.min(20));
    Millis((doubled + spread(key, job, tries)).min(LONGEST.0))
}

fn spread(key: &[u8; 32], job: JobId, tries: u32) -> u64 {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&job.key());
    hasher.update(&tries.to_be_bytes());
    let mut number = [0; 8];
    number.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_be_bytes(number) % SPREAD_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    // FEATURES: D7
    #[test]
    fn delays_double_from_a_second_to_half_a_minute() {
        let key = [1; 32];
        for (tries, least) in [(0, 1_000), (1, 2_000), (2, 4_000), (3, 8_000), (4, 16_000)] {
            let delay = delay(&key, JobId(7), tries).0;
            assert!((least..least + SPREAD_MS).contains(&delay), "{tries}: {delay}");
        }
        for tries in [5, 6, 49, u32::MAX] {
            assert_eq!(delay(&key, JobId(7), tries), LONGEST);
        }
    }

    #[test]
    fn the_jitter_depends_on_the_key() {
        let with = |key: u8| (0..50).map(|job| delay(&[key; 32], JobId(job), 0).0).collect::<Vec<_>>();
        assert_ne!(with(1), with(2));
        let mut distinct = with(1);
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 25, "jobs of the same moment get different delays: {distinct:?}");
    }
}
