//! Tests of the runner with recorded messages instead of shards.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod attempts;
mod components;
mod leases;
mod messages;
mod orphans;
mod outbox;
mod sandboxed;
mod support;
mod tethers;
