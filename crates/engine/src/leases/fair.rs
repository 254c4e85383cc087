//! Equal shares: nobody gets more than it wants, and what one leaves goes to the others.

use std::cmp::Reverse;

/// One who wants a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entrant {
    pub want: u32,
    /// What it has already.
    pub total: u32,
    /// When it was last given something: the smaller, the longer ago. 0: it may keep what it has.
    pub turn: u64,
}

/// Who gets how much of `amount`: all they want if there is enough, else equal parts with small wants filled first.
///
/// What cannot be divided goes to those who have it, since moving it about would help nobody. Only when there is less
/// than one for each, it goes to those who have waited the longest, so that everyone has a turn.
pub(super) fn shares(amount: u32, entrants: &[Entrant]) -> Vec<u32> {
    let mut by_want: Vec<usize> = (0..entrants.len()).collect();
    by_want.sort_by_key(|index| entrants[*index].want);
    let mut shares = vec![0; entrants.len()];
    let mut left = amount;
    for (place, index) in by_want.iter().enumerate() {
        // At most 1,024 shards take part.
        let others = (by_want.len() - place) as u32;
        let level = left / others;
        let want = entrants[*index].want;
        if want <= level {
            shares[*index] = want;
            left -= want;
            continue;
        }
        let mut rest = by_want[place..].to_vec();
        for index in &rest {
            shares[*index] = level;
        }
        rest.sort_by_key(|index| {
            let entrant = &entrants[*index];
            (Reverse(level > 0 && entrant.total > level), entrant.turn, *index)
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

    fn of(wants: &[u32]) -> Vec<Entrant> {
        wants.iter().map(|want| Entrant { want: *want, total: 0, turn: 0 }).collect()
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
    fn what_cannot_be_divided_stays_where_it_is() {
        let entrant = |total, turn| Entrant { want: 9, total, turn };
        assert_eq!(shares(10, &[entrant(3, 1), entrant(3, 2), entrant(4, 3)]), [3, 3, 4]);
    }

    #[test]
    fn with_less_than_one_for_each_they_take_turns() {
        let mut entrants = of(&[5, 5, 5]);
        let mut got = [0; 3];
        for turn in 1..=9 {
            let shares = shares(1, &entrants);
            let lucky = shares.iter().position(|share| *share == 1).unwrap();
            got[lucky] += 1;
            entrants[lucky].turn = turn;
        }
        assert_eq!(got, [3, 3, 3]);
    }

    proptest! {
        #[test]
        fn shares_use_up_the_amount_and_are_equal_but_for_small_wants(
            amount in 0u32..40,
            entrants in prop::collection::vec((0u32..12, 0u32..12, 0u64..5), 0..7)
        ) {
            let entrants: Vec<Entrant> =
                entrants.into_iter().map(|(want, total, turn)| Entrant { want, total, turn }).collect();
            let shares = shares(amount, &entrants);
            let wanted: u32 = entrants.iter().map(|entrant| entrant.want).sum();
            prop_assert_eq!(shares.iter().sum::<u32>(), amount.min(wanted));
            let most = shares.iter().copied().max().unwrap_or(0);
            for (share, entrant) in shares.iter().zip(&entrants) {
                prop_assert!(*share <= entrant.want);
                prop_assert!(*share == entrant.want || *share + 1 >= most, "{:?}", shares);
            }
        }
    }
}
