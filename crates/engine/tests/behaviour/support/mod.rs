//! One shard in virtual time with records in memory.

mod fixture;
mod messages;
mod records;
mod runner;
pub mod workflows;

pub use fixture::{Fixture, signature};
pub use messages::*;
