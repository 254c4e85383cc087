//! Typed client of Outlast's HTTP API.
//!
//! [`Client`] is cheap to clone and reuses its connections. Its methods are grouped like the API: [`jobs`], [`queues`],
//! [`workflows`], [`schedules`], [`approvals`], [`dead_letters`], [`audit`], [`policy`], [`blobs`], [`workers`],
//! [`nodes`], [`logs`] and [`events`]. [`load`] is separate: raw connections with minimal overhead, for benchmarks that
//! share their machine with the server.

mod address;
pub mod approvals;
mod attempts;
pub mod audit;
mod backoff;
pub mod blobs;
mod client;
pub mod dead_letters;
mod error;
pub mod events;
pub mod health;
pub mod jobs;
pub mod load;
pub mod logs;
pub mod nodes;
pub mod policy;
mod query;
pub mod queues;
mod random;
mod request;
pub mod schedules;
mod servers;
pub mod sse;
mod transport;
pub mod workers;
pub mod workflows;

pub use address::{Address, InvalidAddress};
pub use client::{Client, Options};
pub use error::{Error, describe};
pub use random::is_generated_key;
