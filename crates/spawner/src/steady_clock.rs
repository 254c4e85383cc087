//! The machine's steady clock: it does not jump, all processes since the boot share it, and it goes on while the machine is
//! suspended. A lease that ran out meanwhile is found on waking up.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the boot.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Neither is negative.
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}
