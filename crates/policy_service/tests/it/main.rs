//! The client against a policy service in its own process, and against other servers on its port.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod admission;
mod answers;
mod breaker_model;
mod failures;
mod recovery;
mod support;
mod tls;
