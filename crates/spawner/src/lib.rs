//! A small process, one for each node, that forks attempts into their sandboxes and outlives its server.
//!
//! It has one thread and next to no state: a large program with many threads forks slowly and dangerously, and a server
//! that is replaced must not take the work of hours with it. A server speaks to it over a socket ([`protocol`]), and the
//! next one takes over what the last one left ([`claim`]).
//!
//! - `keeper`: the spawner's own loop.
//! - `init`: the first process of each attempt: keeps its output ([`log`]) and ends what it leaves.
//! - `program`: from the fork to the program's first instruction.
//! - `sandbox`: root, seccomp filter, landlock; `groups`: control groups.

mod channel;
mod groups;
mod init;
mod keeper;
pub mod log;
mod processes;
mod program;
pub mod protocol;
mod report;
mod sandbox;
mod start;
mod sys;
mod trial;

use std::os::fd::OwnedFd;

pub use channel::{Channel, MESSAGE_BYTES_MAX, file_with};
pub use keeper::HELD_MAX;
pub use sandbox::filter::bytes as filter_bytes;
pub use sandbox::root::Places;
pub use start::{Claimed, Holding, Options, become_spawner_if_asked, claim, is_asked_for};

/// Lives a spawner's life; returns its exit code.
fn run(options: Options, listener: OwnedFd) -> i32 {
    match keeper::Keeper::new(options, listener) {
        Ok(keeper) => {
            keeper.live();
            0
        }
        Err(error) => {
            eprintln!("the spawner cannot start: {error}");
            1
        }
    }
}
