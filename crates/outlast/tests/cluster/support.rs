//! A cluster per test: hosts, links, nodes and jobs.

mod cluster;
mod gate;
mod node;
mod process;

use std::time::{Duration, Instant};

pub use cluster::Cluster;
pub use gate::Gate;
pub use hosts::{Delay, Loss};
pub use node::{Node, copy_directory};
pub use process::{is_running, send as send_signal};

/// Limit of every wait.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of looking again.
pub const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until `probe` finds something.
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(INTERVAL);
    }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}
