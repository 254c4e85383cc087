//! The machine's steady clock: it does not jump, all processes since the boot share it, and it goes on while the machine is
//! suspended.

use model::time::Millis;

pub fn now() -> Millis {
    Millis(spawner::steady_clock::now_ms())
}
