//! Tests with real components on a real engine.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod basics;
mod caching;
mod concurrency;
mod directories;
mod guests;
mod limits;
mod refusals;
mod stopping;
mod support;
mod traps;
