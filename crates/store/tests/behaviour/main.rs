//! Tests of the stores: the conformance suite for each, and specific tests of the embedded one.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod conformance;
mod crash;
mod damage;
mod directory;
mod failover;
mod model_store;
mod support;
