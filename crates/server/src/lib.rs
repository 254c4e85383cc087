//! One node: configuration, wiring, and the HTTP and WebSocket API.
//!
//! Each shard of the scheduler has a thread of its own (`shard`) that does what the engine asks
//! for, in the order that makes it safe: handle, commit, perform. Reads never bother it: every
//! change is in the store before anyone is told, so they go there.

mod api;
mod clock;
mod error;
mod fetcher;
mod inbox;
mod keeping;
mod measures;
mod node;
mod options;
mod plans;
mod policy;
mod reads;
mod rehydrate;
mod scanning;
mod shard;
mod tidy;

pub use api::check_view;
pub use error::Error;
pub use node::{Address, Node, run};
pub use options::{
    KernelOptions, OTHERS, Options, OutputOptions, PolicyOptions, PoolOptions, RunnerOptions, TenantOptions,
    TopicOptions,
};
