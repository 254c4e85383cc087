//! A typed client of Outlast's HTTP API.
//!
//! [`Client`] is cheap to clone and reuses its connections. Its methods are grouped as the API is: [`jobs`],
//! [`queues`], [`workflows`], [`schedules`], [`approvals`], [`letters`], [`audit`], [`policy`], [`blobs`], [`workers`],
//! [`nodes`], [`logs`] and [`events`]. [`load`] is something else: raw connections that cost as little as possible, for
//! benchmarks that share their machine with the server.

mod address;
pub mod approvals;
pub mod audit;
mod base64;
pub mod blobs;
mod client;
mod error;
pub mod events;
pub mod health;
pub mod jobs;
pub mod letters;
pub mod load;
pub mod logs;
pub mod nodes;
pub mod policy;
mod query;
pub mod queues;
pub mod schedules;
pub mod sse;
mod transport;
pub mod workers;
pub mod workflows;

pub use address::{Address, BadAddress};
pub use client::{Client, Options};
pub use error::{Error, in_words};
