//! The policy as a remote service: its protocol, the client, and the circuit breaker between them.
//!
//! A *policy kernel* is a program of the operator's that says over gRPC which jobs may run and which results may be
//! seen. Its protocol is `proto/outlast/policy/v1/policy.proto`; `example-kernel` in this package is a small one to
//! learn from and to test with.
//!
//! - [`Client`] asks. It never waits longer than it is told to, asks no more at once than it is told to, and takes no
//!   answer for more than it is: one that makes no sense is a denial.
//! - [`breaker::Breaker`] decides when a kernel that fails is asked again. It is a pure state machine.
//! - [`FailMode`] is what its caller does when there is no answer; the client itself never lets anything through.
//!
//! The crate knows nothing of shards or HTTP. It opens connections to one address and reads the TLS files it is given.

mod answer;
pub mod breaker;
mod client;
mod clock;
mod connection;
mod error;
mod facts;
mod fail_mode;
mod gate;
pub mod limits;
mod line;
mod options;
pub mod proto;
mod status;

pub use answer::{Checked, CheckedOutput, Explained, POLICY_ERROR};
pub use client::Client;
pub use clock::{Clock, SystemClock};
pub use error::{Error, Unavailable, Why};
pub use facts::{Artifact, CheckFacts, Finding, FindingKind, Outcome, OutputFacts};
pub use fail_mode::{FAIL_MODE_VARIABLE, FailMode, NoFailMode};
pub use options::{Identity, Options, Tls};
pub use status::{GateStatus, KernelStatus, LastError};
