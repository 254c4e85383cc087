//! Max-min fair shares: no claimant gets more than it demands, and the remainder goes to the others.

use std::cmp::Reverse;

/// A shard that demands slots or tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claimant {
    pub want: u32,
    /// What it already has.
    pub total: u32,
    /// Logical time of the last grant. The smallest is served first; 0: within its minimum hold time.
    pub last_served: u64,
}

/// Divides `amount`: every demand in full if possible, else equal shares, small demands first.
///
/// An indivisible rest goes to claimants that already hold more than the equal share: moving it would gain nothing.
/// With less than one for each, it goes to the claimants that have waited longest, so that it rotates.
pub(super) fn shares(amount: u32, claimants: &[Claimant]) -> Vec<u32> {
    let mut by_want: Vec<usize> = (0..claimants.len()).collect();
    by_want.sort_by_key(|index| claimants[*index].want);
    let mut shares = vec![0; claimants.len()];
    let mut left = amount;
    for (position, index) in by_want.iter().enumerate() {
        // At most 1,024 shards, so it fits.
        let others = (by_want.len() - position) as u32;
        let level = left / others;
        let want = claimants[*index].want;
        if want <= level {
            shares[*index] = want;
            left -= want;
            continue;
        }
        let mut rest = by_want[position..].to_vec();
        for index in &rest {
            shares[*index] = level;
        }
        rest.sort_by_key(|index| {
            let claimant = &claimants[*index];
            (Reverse(level > 0 && claimant.total > level), claimant.last_served, *index)
        });
        for index in rest.into_iter().take((left - level * others) as usize) {
            shares[index] += 1;
        }
        break;
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(wants: &[u32]) -> Vec<Claimant> {
        wants.iter().map(|want| Claimant { want: *want, total: 0, last_served: 0 }).collect()
    }

    #[test]
    fn small_wants_are_filled_and_the_others_share_the_rest() {
        assert_eq!(shares(10, &of(&[2, 9, 9])), [2, 4, 4]);
        assert_eq!(shares(10, &of(&[1, 2, 3])), [1, 2, 3]);
        assert_eq!(shares(0, &of(&[1, 2])), [0, 0]);
        assert!(shares(5, &[]).is_empty());
        assert_eq!(shares(u32::MAX, &of(&[u32::MAX; 3])), [u32::MAX / 3; 3]);
    }

    #[test]
    fn an_indivisible_rest_stays_with_its_holder() {
        let claimant = |total, last_served| Claimant { want: 9, total, last_served };
        assert_eq!(shares(10, &[claimant(3, 1), claimant(3, 2), claimant(4, 3)]), [3, 3, 4]);
    }

    #[test]
    fn with_less_than_one_for_each_the_slots_rotate() {
        let mut claimants = of(&[5, 5, 5]);
        let mut got = [0; 3];
        for time in 1..=9 {
            let shares = shares(1, &claimants);
            let served = shares.iter().position(|share| *share == 1).unwrap();
            got[served] += 1;
            claimants[served].last_served = time;
        }
        assert_eq!(got, [3, 3, 3]);
    }

    proptest! {
        #[test]
        fn shares_use_up_the_amount_and_are_equal_but_for_small_wants(
            amount in 0u32..40,
            claimants in prop::collection::vec((0u32..12, 0u32..12, 0u64..5), 0..7)
        ) {
            let claimants: Vec<Claimant> =
                claimants.into_iter().map(|(want, total, last_served)| Claimant { want, total, last_served }).collect();
            let shares = shares(amount, &claimants);
            let wanted: u32 = claimants.iter().map(|claimant| claimant.want).sum();
            prop_assert_eq!(shares.iter().sum::<u32>(), amount.min(wanted));
            let most = shares.iter().copied().max().unwrap_or(0);
            for (share, claimant) in shares.iter().zip(&claimants) {
                prop_assert!(*share <= claimant.want);
                prop_assert!(*share == claimant.want || *share + 1 >= most, "{:?}", shares);
            }
        }
    }
}
