//! Helper process, one per node, that forks attempts into sandboxes and outlives its server.
//!
//! It has one thread and little state: forking a large multi-threaded program is slow and unsafe, and replacing a
//! server must not end attempts that have run for hours. A server talks to it over a Unix socket ([`protocol`]). The
//! next server takes over the attempts in flight ([`claim`]).
//!
//! - `spawner`: the main loop.
//! - `client`: the server's side, finds or starts a spawner.
//! - `init`: the first process of each attempt, stores its output ([`log`]) and kills leftover processes.
//! - `program`: from the fork to the exec.
//! - `spawner/leases`: kills attempts whose lease has run out.
//! - `tethers`: connections to control nodes that show that the spawner lives.
//! - `sandbox`: root file system, seccomp filter, landlock; `cgroups`: control groups.

mod cgroups;
mod channel;
mod client;
mod init;
pub mod log;
mod process_tree;
mod program;
mod protections;
pub mod protocol;
mod report;
mod sandbox;
mod spawner;
pub mod steady_clock;
mod sys;
mod tethers;

use std::os::fd::OwnedFd;

pub use channel::{Channel, MESSAGE_BYTES_MAX, memfd_with};
pub use client::{ClaimedSpawner, InFlightAttempt, Options, claim, is_requested, run_if_requested};
pub use init::DISK_RESERVE_BYTES;
pub use sandbox::root::Directories;
pub use sandbox::seccomp::bytes as seccomp_filter_bytes;
pub use spawner::ATTEMPTS_MAX;
pub use tethers::TETHERS_MAX;

/// Runs a spawner until it shuts down; returns its exit code.
fn run(options: Options, listener: OwnedFd) -> i32 {
    match spawner::Spawner::new(options, listener) {
        Ok(spawner) => {
            spawner.run();
            0
        }
        Err(error) => {
            eprintln!("the spawner cannot start: {error}");
            1
        }
    }
}
