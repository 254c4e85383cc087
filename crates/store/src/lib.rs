//! Durable state of shards: what a store promises ([`Store`]), the store that comes with the server
//! ([`Embedded`]), a model of it for simulations ([`ModelStore`]), and one [`conformance`] suite for all.
//!
//! A store keeps ordered maps per shard. A commit is a [`model::batch::Batch`]: all of it becomes durable, or
//! nothing. Each shard has one owner at a time: opening a shard gives a new epoch, and a commit with any
//! earlier epoch is refused.

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
