//! Load generator with minimal overhead, because it shares its cores with the measured server.
//!
//! Raw keep-alive connections in a closed loop, prebuilt request heads, minimal response parsing. The generator knows
//! HTTP but not Outlast: a [`Workload`] defines the requests and what counts as success.

mod connection;
mod generator;
mod histogram;
mod reply;
mod request;

pub use connection::{Connection, Reply};
pub use generator::{LoadPlan, LoadReport, Progress, Tally, Workload, run};
pub use histogram::Histogram;
pub use reply::Malformed;
pub use request::RequestHead;
