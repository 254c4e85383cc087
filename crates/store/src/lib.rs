//! Durable state of shards: the trait ([`Store`]), the built-in store ([`Embedded`]), an in-memory model for
//! simulations ([`ModelStore`]), and one [`conformance`] suite for all implementations.
//!
//! A store contains ordered maps per shard. A commit is a [`model::batch::Batch`], which becomes durable completely or
//! not at all. Each shard has one owner at a time: opening a shard returns a new epoch, and commits of any earlier
//! epoch are rejected.

mod api;
pub mod conformance;
mod embedded;
mod error;
mod key;
mod model_store;

pub use api::{CommitHook, Committed, EventReader, Order, Range, Store};
pub use embedded::{Embedded, Options, Verification};
pub use error::Error;
pub use journal::Position;
pub use key::Key;
pub use model_store::{Fault, ModelStore};
