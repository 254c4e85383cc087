//! Clock of the breakers.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::time::Millis;

/// Monotonic milliseconds since the Unix epoch.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Millis;
}

/// Wall clock at creation plus monotonic time since then. Setting the machine's clock neither opens nor closes a
/// breaker.
#[derive(Debug)]
pub struct SystemClock {
    created_at: Millis,
    created: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { created_at: millis(since_epoch), created: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        self.created_at + millis(self.created.elapsed())
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
