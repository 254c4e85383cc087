//! Runs attempts.
//!
//! A runner talks to shards in messages only ([`model::message`]): it is told what to run and what
//! to stop, and says what started and how it ended. Its words are numbered per shard and kept until
//! the shard has committed them, so that a shard that comes back hears everything it has missed.

mod echo;
mod handle;
mod leftovers;
mod link;
pub mod logs;
mod process;

pub use handle::{Handle, Options, Uplink, start};
pub use leftovers::end_leftovers;
