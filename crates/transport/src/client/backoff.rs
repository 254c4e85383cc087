//! Waits between attempts: doubled each time, with jitter.

use std::time::Duration;

use crate::random;

#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.min;
    }

    /// Half to all of the current wait, at random.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        wait.mul_f64(0.5 + random::fraction() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum_with_jitter() {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(5));
        let mut backoff = Backoff::new(min, max);
        let mut expected = min;
        for _ in 0..20 {
            let wait = backoff.next();
            assert!(wait >= expected / 2 && wait <= expected, "{wait:?} of {expected:?}");
            expected = (expected * 2).min(max);
        }
        backoff.reset();
        assert!(backoff.next() <= min);
    }
}
