//! The one place where the server reads the wall clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::time::Millis;
use parking_lot::Mutex;

/// The time that was told last, and when that was.
struct Told {
    time: Duration,
    at: Instant,
}

/// Wall-clock time that never stands still: when the wall clock is set back, this one goes on from where it was, so
/// that delays and timeouts end when they should.
pub(crate) fn now() -> Millis {
    static TOLD: OnceLock<Mutex<Told>> = OnceLock::new();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = Instant::now();
    let mut told = TOLD.get_or_init(|| Mutex::new(Told { time: wall, at })).lock();
    told.time = advance(told.time, at.saturating_duration_since(told.at), wall);
    told.at = told.at.max(at);
    Millis(u64::try_from(told.time.as_millis()).unwrap_or(u64::MAX))
}

fn advance(told: Duration, elapsed: Duration, wall: Duration) -> Duration {
    wall.max(told + elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_time() {
        let secs = Duration::from_secs;
        assert_eq!(advance(secs(100), secs(2), secs(102)), secs(102));
        assert_eq!(advance(secs(100), secs(2), secs(40)), secs(102), "set back");
        assert_eq!(advance(secs(100), secs(2), secs(500)), secs(500), "set ahead");
    }
}
