//! A cluster in virtual time: the production [`Membership`](crate::Membership) of many nodes on a simulated network.
//!
//! Everything follows from a seed. [`Cluster`] is the world and its faults; [`Checker`] checks every change that a node
//! observes; [`run`] is a random scenario with both; [`measure_detection`] kills one node and measures.

mod checker;
mod clock;
mod cluster;
mod detection;
mod network;
mod scenario;
#[cfg(test)]
mod tests;

pub use checker::{Checker, Violation};
pub use cluster::{Cluster, Observation, Settings};
pub use detection::{Detection, measure_detection};
pub use network::Network;
pub use scenario::{Faults, Report, run};
