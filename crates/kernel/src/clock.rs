//! The time that the breaker goes by.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::time::Millis;

/// Milliseconds since the Unix epoch that never go back.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Millis;
}

/// The wall clock when it was made, and from then on the time that has really passed: setting the machine's clock
/// neither opens nor closes a breaker.
#[derive(Debug)]
pub struct SystemClock {
    made_at: Millis,
    made: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { made_at: millis(since_epoch), made: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        self.made_at + millis(self.made.elapsed())
    }
}

pub(crate) fn millis(duration: std::time::Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_starts_at_the_wall_clock_and_never_goes_back() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let clock = SystemClock::default();
        let mut last = clock.now();
        assert!(last >= millis(before) && last.0 - millis(before).0 < 3_600_000);
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
