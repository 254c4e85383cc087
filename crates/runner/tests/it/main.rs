//! The runner alone: a shard that only listens, and what is said to it.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod attempts;
mod common;
mod components;
mod leftovers;
mod sandboxed;
mod words;
