//! Real components on a real engine: what they may do, what they may not, and what is said about it.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod basics;
mod caching;
mod common;
mod crowds;
mod directories;
mod guests;
mod limits;
mod refusals;
mod stopping;
mod traps;
