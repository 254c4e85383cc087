//! Data model of Outlast: ids, states, records, events, errors.
//!
//! Pure data and pure functions. No clock, no randomness, no I/O: callers pass the time in.

pub mod audit;
pub mod batch;
pub mod blob;
pub mod change;
pub mod codec;
pub mod dead_letter;
pub mod envelope;
pub mod id;
pub mod job;
pub mod json;
pub mod key;
pub mod limits;
pub mod machine;
pub mod message;
pub mod node;
pub mod partition;
pub mod queue;
pub mod reason;
pub mod rejected;
#[cfg(feature = "schema")]
mod schema;
pub mod session;
pub mod spec;
pub mod state;
pub mod supervision;
pub mod time;
pub mod verdict;
pub mod workflow;
