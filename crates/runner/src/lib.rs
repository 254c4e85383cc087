//! Runs attempts and reports their ends.
//!
//! Shards send a runner messages ([`Handle::send`]); the runner answers through [`Uplink`]. There are three executors:
//! `process` under the node's spawner, `component` (WebAssembly) inside the server, and `echo`. Messages stay in an
//! outbox until the shard has committed them (crate `link`), ends on disk if that takes long (`outbox`); output and files of
//! an attempt stay until its end is committed.

mod admission;
mod component;
mod echo;
mod handle;
mod in_flight;
mod load;
pub mod logs;
mod options;
mod orphans;
mod outbox;
pub mod pressure;
mod process;
mod progress;
mod run_request;
mod sampling;
mod spawner_client;
pub mod steady_clock;
mod workspace;

pub use handle::{Handle, StopMode, start};
pub use options::{Defaults, Options, Uplink};
pub use orphans::{HomeId, kill_orphans};
pub use outbox::{OutboxOptions, OutboxUsage};
pub use progress::ProgressReport;
pub use sampling::{CurrentUsage, Sampling};
pub use spawner::protocol::{Enforcement, Protections};
pub use spawner_client::SpawnerOptions;
