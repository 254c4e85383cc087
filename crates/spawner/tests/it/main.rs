//! Tests with a real spawner, real sandboxes and programs that try to escape.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod escape;
mod leases;
mod lifecycle;
mod limits;
mod logs;
mod old_server;
mod support;
mod tethers;
mod unprivileged;
