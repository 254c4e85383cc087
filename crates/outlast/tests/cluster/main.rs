//! End-to-end tests of a cluster: processes of the command in network namespaces, with faults of processes and links.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod control;
mod copy;
mod cut;
mod delay;
mod disk;
mod files;
mod garbage;
mod grace;
mod kill;
mod leave;
mod loss;
mod pause;
mod storm;
mod support;
mod tokens;
