//! Durable state of shards: the trait ([`Store`]), the built-in store ([`Embedded`]), an in-memory model for
//! simulations ([`ModelStore`]), stores in front of another one for tests ([`Wrapper`]), and one [`conformance`] suite
//! for all implementations.
//!
//! A store contains ordered maps per shard. A commit is a [`model::batch::Batch`], which becomes durable completely or
//! not at all. Each shard has one owner at a time: opening a shard returns a fencing token, and commits with any earlier
//! token are rejected. Small documents that all nodes share change by compare-and-set.

mod api;
pub mod conformance;
mod cursor;
mod embedded;
mod error;
mod key;
mod leases;
mod model_store;
mod wrapper;

pub use api::{
    CommitHook, Committed, DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, Document, Durability, EventReader,
    FencingToken, Order, Range, ShardOwner, Store, StoreId, Version,
};
pub use cursor::Cursor;
pub use embedded::{DataDirectory, Embedded, Options, Verification};
pub use error::Error;
pub use journal::Position;
pub use key::Key;
pub use model_store::{Fault, Lost, ModelStore};
pub use wrapper::{Observed, Wrapper};
