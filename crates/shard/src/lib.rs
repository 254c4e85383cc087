//! The shell of a shard, without threads and clocks: a node drives it, and so does the simulation.
//!
//! An [`Owner`] holds a shard under one epoch. It is opened under a new epoch, rehydrated from records and resumed; then it
//! takes part in rounds. In each round it handles inputs, commits once, and hands out its effects:
//!
//! 1. [`Owner::begin_round`], then any of `handle`, `receive`, `reply`, … until [`Owner::is_full`];
//! 2. [`Owner::flush`] and [`Owner::commit`];
//! 3. the effects of [`Owner::step`], then [`Owner::end_round`].
//!
//! After an error an owner is of no use: its memory may be ahead of the disk. The next owner is built from the records.

mod error;
mod fetch;
mod owner;
mod plans;
pub mod reads;
mod rehydrate;
mod spill;

pub use error::Error;
pub use fetch::answer;
pub use owner::{Options, Outcomes, Owner};
pub use plans::{PlanCache, Unreadable, load_plan};
