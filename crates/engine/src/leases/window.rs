//! Sliding window over the tokens handed out in the last second.

use std::collections::VecDeque;

use model::time::Millis;

/// Length of the window.
pub const TOKEN_WINDOW: Millis = Millis::from_secs(1);

/// Tokens handed out in the last second: at most the limit, possibly all at once.
///
/// One entry per millisecond in which tokens were handed out: at most 1,000.
#[derive(Debug, Default)]
pub(super) struct Window {
    log: VecDeque<(Millis, u32)>,
    sum: u64,
}

impl Window {
    fn forget(&mut self, now: Millis) {
        while let Some((at, amount)) = self.log.front().copied()
            && at + TOKEN_WINDOW <= now
        {
            self.sum -= u64::from(amount);
            self.log.pop_front();
        }
    }

    /// Tokens that can be handed out now.
    pub fn free(&mut self, limit: u32, now: Millis) -> u32 {
        self.forget(now);
        // At most the limit, so it fits.
        u64::from(limit).saturating_sub(self.sum) as u32
    }

    pub fn hand_out(&mut self, amount: u32, now: Millis) {
        self.sum += u64::from(amount);
        match self.log.back_mut() {
            Some((at, sum)) if *at == now => *sum = sum.saturating_add(amount),
            Some(_) | None => self.log.push_back((now, amount)),
        }
    }

    /// When further tokens become free.
    pub fn next_free(&self) -> Option<Millis> {
        self.log.front().map(|(at, _)| *at + TOKEN_WINDOW)
    }

    /// When the window becomes empty.
    pub fn empty_at(&self) -> Option<Millis> {
        self.log.back().map(|(at, _)| *at + TOKEN_WINDOW)
    }

    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_full_limit_is_free_at_once_and_again_a_second_later() {
        let mut window = Window::default();
        assert_eq!(window.free(5, Millis(10)), 5);
        window.hand_out(5, Millis(10));
        assert_eq!(window.free(5, Millis(1009)), 0);
        assert_eq!(window.next_free(), Some(Millis(1010)));
        assert_eq!(window.free(5, Millis(1010)), 5);
        assert!(window.is_empty());
    }

    proptest! {
        #[test]
        fn no_second_exceeds_limit(limit in 1u32..20, wanted in prop::collection::vec((0u64..400, 1u32..8), 1..60)) {
            let mut window = Window::default();
            let mut given: Vec<(Millis, u32)> = Vec::new();
            let mut now = Millis(0);
            for (passed, amount) in wanted {
                now = now + Millis(passed);
                let amount = amount.min(window.free(limit, now));
                window.hand_out(amount, now);
                given.push((now, amount));
                let second = given.iter().filter(|(at, _)| *at + TOKEN_WINDOW > now);
                prop_assert!(second.map(|(_, amount)| *amount).sum::<u32>() <= limit);
                prop_assert!(window.log.len() <= 1000);
            }
        }
    }
}
