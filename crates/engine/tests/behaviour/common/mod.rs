//! One shard in virtual time over records in memory.

mod fixture;
pub mod flows;
mod records;
mod runner;
mod words;

pub use fixture::Fixture;
pub use words::*;
