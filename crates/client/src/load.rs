//! A load generator that costs next to nothing: it shares its cores with the server that it measures.
//!
//! Raw keep-alive connections in a closed loop, requests written from prepared parts, answers read only as far as
//! needed. It knows HTTP but not Outlast: a [`Workload`] says what is sent and what counts as success.

mod connection;
mod generator;
mod histogram;
mod reply;
mod request;

pub use connection::{Connection, Reply};
pub use generator::{Outcome, Plan, Progress, Tally, Workload, run};
pub use histogram::Histogram;
pub use reply::Malformed;
pub use request::RequestHead;
