//! Tests with real sockets on the loopback interface.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod calls;
mod children;
mod close;
mod flow;
mod garbage;
mod join;
mod members;
mod old_node;
mod reconnect;
mod support;
mod tethers;
