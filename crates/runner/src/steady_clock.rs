//! The machine's monotonic clock: it does not jump, and all processes since the boot share it.

use model::time::Millis;
use rustix::time::{ClockId, clock_gettime};

pub fn now() -> Millis {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative.
    Millis(now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000)
}
