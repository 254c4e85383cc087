//! The client from outside: against a real kernel in a process of its own, and against things that are none.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod answers;
mod breaker_model;
mod common;
mod crowd;
mod faults;
mod recovery;
mod tls;
