//! Hosts in network namespaces, for tests and the benchmark: a cluster on one machine whose links can be cut.
//!
//! Needs root, `ip` and `nft`.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod delay;
mod network;

pub use delay::Delay;
pub use network::{Host, Loss, Network};
