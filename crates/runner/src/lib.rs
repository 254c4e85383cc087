//! Runs attempts and passes on what becomes of them.
//!
//! A runner is told by its shards what to run ([`Handle::send`]) and tells them what happens ([`Uplink`]).
//! Three executors: `process` under the node's spawner, `component` in the server itself, and `echo`. What has
//! been said is kept until the shard has committed it (`link`); so are an attempt's output and files.

mod asked;
mod component;
mod echo;
mod handle;
mod leftovers;
mod link;
mod load;
pub mod logs;
mod place;
pub mod pressure;
mod process;
mod progress;
mod sampling;
mod spawning;

pub use handle::{Defaults, Departure, Handle, Options, Uplink, start};
pub use leftovers::end_leftovers;
pub use progress::Said;
pub use sampling::{Current, Sampling};
pub use spawner::protocol::{Kept, Protections};
pub use spawning::SpawnerOptions;
