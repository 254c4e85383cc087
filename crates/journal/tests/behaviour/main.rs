//! Tests of the journal's public API, one file per behaviour.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod crash;
mod damage;
mod failure;
mod rotation;
mod round_trip;
mod support;
