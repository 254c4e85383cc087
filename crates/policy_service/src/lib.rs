//! Client of a policy service: protocol, connection, circuit breaker.
//!
//! A *policy service* is the operator's own program. Over gRPC it decides which jobs may run and which results may be
//! shown. The protocol is `proto/outlast/policy/v1/policy.proto`; `example-policy-service` in this package is a small
//! implementation for study and tests.
//!
//! - [`Client`] sends the requests. Time and concurrency are bounded, and an invalid answer is a denial.
//! - [`breaker::Breaker`] decides when a failing service is called again. It is a pure state machine.
//! - [`FailMode`] says what the caller does without an answer. The client itself never allows anything.
//!
//! The crate knows nothing of shards or HTTP. It connects to one address and reads the configured TLS files.

mod admission;
mod answer;
pub mod breaker;
mod circuit;
mod client;
mod clock;
mod connection;
mod error;
mod facts;
mod fail_mode;
pub mod limits;
mod options;
pub mod proto;
mod status;

pub use answer::{CheckResult, ExplainResult, OutputCheckResult, POLICY_ERROR};
pub use client::Client;
pub use clock::{Clock, SystemClock};
pub use error::{Error, Unavailable, UnavailableReason};
pub use facts::{Artifact, CheckFacts, Finding, FindingKind, Outcome, OutputFacts};
pub use fail_mode::{FAIL_MODE_VARIABLE, FailMode, InvalidFailMode};
pub use options::{Identity, Options, Tls};
pub use status::{BreakerStatus, LastError, PolicyServiceStatus};
