//! Clocks of the server.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::time::{Millis, Now};
use parking_lot::Mutex;

/// Last time returned, and the monotonic instant of that call.
struct LastReading {
    time: Duration,
    at: Instant,
}

/// Both clocks.
pub(crate) fn read() -> Now {
    Now { wall: now(), steady: runner::steady_clock::now() }
}

/// Wall-clock time that never goes back. After the wall clock is set back, time advances by the monotonic clock, so
/// delays and timeouts end on time.
pub(crate) fn now() -> Millis {
    static LAST: OnceLock<Mutex<LastReading>> = OnceLock::new();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = Instant::now();
    let mut last = LAST.get_or_init(|| Mutex::new(LastReading { time: wall, at })).lock();
    last.time = advance(last.time, at.saturating_duration_since(last.at), wall);
    last.at = last.at.max(at);
    Millis(u64::try_from(last.time.as_millis()).unwrap_or(u64::MAX))
}

fn advance(last: Duration, elapsed: Duration, wall: Duration) -> Duration {
    wall.max(last + elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_advances_after_the_wall_clock_is_set_back() {
        let secs = Duration::from_secs;
        assert_eq!(advance(secs(100), secs(2), secs(102)), secs(102));
        assert_eq!(advance(secs(100), secs(2), secs(40)), secs(102), "set back");
        assert_eq!(advance(secs(100), secs(2), secs(500)), secs(500), "set ahead");
    }
}
