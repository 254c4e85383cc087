//! The conversation between a shard and a runner: both ends, without I/O and without a clock.
//!
//! Each end numbers its messages, keeps them until the other end acknowledges them, and sends them again after a while.
//! The other end takes them in order, each one once. Delivery may lose, repeat, delay and reorder anything.
//!
//! - [`RunnerEnd`] is the runner's end for one shard. It also knows the attempts in flight, so a repeated dispatch starts
//!   nothing, and a stop of an unknown attempt is confirmed. Its messages count per incarnation of the runner.
//! - [`ShardEnd`] is the shard's end for one runner. Its messages count per [`Session`](model::message::Session). It
//!   lives in memory only: the next owner of the shard begins a new session with an inventory request.
//!
//! Attempts of exclusive jobs have a [`Lease`]. It counts on the runner's clock from the newest time of that clock that the
//! shard is known to have heard, so it has run out a bounded time after the shard last heard the runner, however late
//! messages arrive. [`RunnerEnd::take_expired`] says which attempts must be killed.
//!
//! The shard acknowledges a message when it has committed it; the runner as soon as it has received it. Which of the
//! runner's messages a shard has applied is part of its records, so the engine and not this crate keeps that number.

mod lease;
mod outbox;
mod runner_end;
mod shard_end;

pub use lease::Lease;
pub use runner_end::{Action, HEARTBEAT, InFlight, RunnerEnd};
pub use shard_end::ShardEnd;
