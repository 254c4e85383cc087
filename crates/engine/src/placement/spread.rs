//! Spreads a batch of ready jobs over runners in proportion to their free slots.
//!
//! Giving each job to the runner with the most free slots would load a large runner first and leave small ones idle.
//! Therefore the shares are computed for the whole batch first, exactly, by the largest remainder method.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::placement::attributes::RunnerIndex;

/// With more runners than this, a batch smaller than their number is not spread but dispatched job by job.
pub(crate) const SPREAD_RUNNERS_MAX: usize = 64;

/// A runner's share of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    whole: u32,
    left: u32,
    /// Ties go to the first runner.
    number: Reverse<usize>,
    runner: RunnerIndex,
}

impl Ord for Share {
    /// Order of the next job: the runner that has got the smaller part of its share, so that a batch that ends early is
    /// spread evenly too; then the runner with the larger share.
    fn cmp(&self, other: &Self) -> Ordering {
        let part = |of: &Self, against: &Self| u64::from(of.left) * u64::from(against.whole.max(1));
        let parts = part(self, other).cmp(&part(other, self));
        parts.then(self.whole.cmp(&other.whole)).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The shares of a batch and what is left of them.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    shares: BinaryHeap<Share>,
    left: u64,
}

impl Shares {
    /// Shares of a batch for runners with free slots.
    pub fn of(jobs: usize, free: &[(RunnerIndex, u32)]) -> Self {
        let room: Vec<u32> = free.iter().map(|(_, free)| *free).collect();
        let wholes = largest_remainder(jobs as u64, &room);
        let share = |(number, whole): (usize, u32)| {
            let runner = free[number].0;
            Share { whole, left: whole, number: Reverse(number), runner }
        };
        let left = wholes.iter().map(|whole| u64::from(*whole)).sum();
        Self { shares: wholes.into_iter().enumerate().map(share).collect(), left }
    }

    pub fn are_spent(&self) -> bool {
        self.left == 0
    }

    /// The runner of the next job. Runners without a free slot lose their share; runners that do not suit keep it.
    pub fn next(
        &mut self,
        has_room: impl Fn(RunnerIndex) -> bool,
        suits: impl Fn(RunnerIndex) -> bool,
    ) -> Option<RunnerIndex> {
        let mut passed_over = Vec::new();
        let mut found = None;
        while found.is_none() {
            let Some(mut share) = self.shares.pop() else { break };
            if !has_room(share.runner) {
                self.left -= u64::from(share.left);
                continue;
            }
            if suits(share.runner) {
                found = Some(share.runner);
                self.left -= u64::from(share.left.min(1));
                share.left = share.left.saturating_sub(1);
            }
            passed_over.push(share);
        }
        self.shares.extend(passed_over);
        found
    }
}

/// Shares of `jobs`, at most the sum of `free`, in proportion to `free`: each exact share rounded down, the rest one
/// each to the largest remainders; ties to the first.
fn largest_remainder(jobs: u64, free: &[u32]) -> Vec<u32> {
    let room: u64 = free.iter().map(|free| u64::from(*free)).sum();
    if room == 0 {
        return vec![0; free.len()];
    }
    let jobs = jobs.min(room);
    let exact = |free: u32| u128::from(jobs) * u128::from(free);
    let room = u128::from(room);
    // A share is at most the free slots, so it fits.
    let mut shares: Vec<u32> = free.iter().map(|free| (exact(*free) / room) as u32).collect();
    let given: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    let mut by_remainder: Vec<usize> = (0..free.len()).collect();
    by_remainder.sort_by_key(|runner| Reverse(exact(free[*runner]) % room));
    for runner in by_remainder.into_iter().take((jobs - given) as usize) {
        shares[runner] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All ways to distribute `jobs` over the free slots.
    fn all_ways(jobs: u64, free: &[u32]) -> Vec<Vec<u32>> {
        let Some((first, rest)) = free.split_first() else {
            return if jobs == 0 { vec![Vec::new()] } else { Vec::new() };
        };
        let most = u64::from(*first).min(jobs) as u32;
        (0..=most)
            .flat_map(|share| {
                let tails = all_ways(jobs - u64::from(share), rest);
                tails.into_iter().map(move |tail| std::iter::once(share).chain(tail).collect())
            })
            .collect()
    }

    /// Distance of shares from the exact shares: the sum of squares, times the square of the free slots.
    fn distance(jobs: u64, free: &[u32], shares: &[u32]) -> i128 {
        let room: i128 = free.iter().map(|free| i128::from(*free)).sum();
        let off = |(free, share): (&u32, &u32)| i128::from(*share) * room - i128::from(jobs) * i128::from(*free);
        free.iter().zip(shares).map(off).map(|off| off * off).sum()
    }

    #[test]
    fn shares_are_in_proportion_to_free_slots() {
        assert_eq!(largest_remainder(6, &[10, 2]), [5, 1]);
        assert_eq!(largest_remainder(4, &[10, 2]), [3, 1]);
        assert_eq!(largest_remainder(100, &[3, 0, 4]), [3, 0, 4], "at most the free slots");
        assert_eq!(largest_remainder(1, &[1, 2, 2]), [0, 1, 0], "ties go to the first");
        assert_eq!(largest_remainder(5, &[0, 0]), [0, 0]);
        assert_eq!(largest_remainder(u64::MAX, &[u32::MAX; 3]), [u32::MAX; 3]);
    }

    #[test]
    fn a_batch_that_ends_early_is_spread_evenly() {
        let mut shares = Shares::of(12, &[(RunnerIndex(0), 8), (RunnerIndex(1), 4)]);
        let mut got = [0; 2];
        for _ in 0..6 {
            let next = shares.next(|_| true, |_| true).unwrap();
            got[next.0 as usize] += 1;
        }
        assert_eq!(got, [4, 2]);
    }

    proptest! {
        // FEATURES: C9
        #[test]
        fn no_distribution_is_closer_to_exact_shares(free in prop::collection::vec(0u32..7, 1..5), jobs in 0u64..30) {
            let shares = largest_remainder(jobs, &free);
            let room: u64 = free.iter().map(|free| u64::from(*free)).sum();
            let given = jobs.min(room);
            prop_assert_eq!(shares.iter().map(|share| u64::from(*share)).sum::<u64>(), given);
            prop_assert!(shares.iter().zip(&free).all(|(share, free)| share <= free));
            let ours = distance(given, &free, &shares);
            for other in all_ways(given, &free) {
                prop_assert!(ours <= distance(given, &free, &other), "{shares:?} is worse than {other:?}");
            }
        }
    }
}
