//! One node: configuration, wiring, and the HTTP and WebSocket API.
//!
//! Each shard of the scheduler has its own thread (`shard_loop`). It runs the engine in rounds: handle inputs, commit,
//! perform effects. Reads go to the store, never to the shard: every change is committed before it is visible.

mod api;
mod clock;
mod cluster;
mod document;
mod error;
mod fetcher;
mod inbox;
mod janitor;
mod local_runner;
mod measures;
mod node;
mod node_control;
mod node_news;
mod options;
mod plans;
mod policy;
mod request;
mod result_spill;
mod runner_node;
mod runners;
mod scanning;
mod shard_count;
mod shard_loop;

pub use api::check_view;
pub use error::Error;
pub use node::{Address, Node, run};
pub use options::{
    ClusterOptions, MembershipProfile, Options, OutputOptions, PolicyOptions, PolicyServiceOptions, PoolOptions,
    RunnerOptions, StoreWrapper, TenantOptions, TopicOptions, WILDCARD,
};
pub use runner_node::{OnEvent, RunnerNode, RunnerNodeEvent, RunnerNodeOptions, run_runner_node};
