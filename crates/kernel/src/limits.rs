//! Every limit of this crate, in one place, with its unit. Each has a test at the limit.
//!
//! Those that an operator may want to change are defaults of [`crate::Options`] or of [`crate::breaker::Settings`].

use std::time::Duration;

use model::time::Millis;

/// How long one call may take, from the connection to the answer.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// What may be set instead.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Calls that the kernel is busy with.
pub const IN_FLIGHT_MAX_DEFAULT: usize = 256;
/// What may be set instead.
pub const IN_FLIGHT_MAX_MAX: usize = 65_536;
/// Calls that wait for one of those to end. They do so for at most the time that a call may take.
pub const WAITING_MAX_DEFAULT: usize = 16_384;
/// A job in JSON. With everything around it, it fits into the 4 MiB that gRPC servers take unless told otherwise.
pub const JOB_BYTES_MAX_DEFAULT: usize = 3 << 20;

/// Failures in a row that open the breaker.
pub const FAILURES_TO_OPEN: u32 = 3;
/// How long it stays open.
pub const OPEN_FOR: Millis = Millis::from_secs(30);
/// Half-open, so many calls at a time.
pub const PROBES_MAX: u32 = 3;
/// Half-open, so many successes close it.
pub const SUCCESSES_TO_CLOSE: u32 = 2;
/// A probe that nobody has reported for so long does not keep others out any more.
pub const PROBE_PATIENCE: Millis = Millis::from_secs(30);

/// One answer, encoded. A larger one is not read.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The kernel's word for the version of its rules.
pub const VERSION_BYTES_MAX: usize = 128;
/// What a kernel may ask for as the longest throttle, and what it gets if it does not say.
pub const THROTTLE_MAX: Millis = Millis::from_secs(24 * 3600);
pub const THROTTLE_DEFAULT: Millis = Millis::from_secs(5);
/// Jobs of one tenant at once, under one rule.
pub const CONCURRENT_MAX: u32 = 1_000_000;
/// Of an explanation, so many lines are shown, each up to [`model::limits::MESSAGE_BYTES_MAX`].
pub const TRACE_LINES_MAX: usize = 256;
/// Of a job's files, so many are named to the kernel; the others are counted.
pub const ARTIFACTS_NAMED_MAX: usize = 1_000;
/// A certificate or key in a file.
pub const PEM_BYTES_MAX: u64 = 1 << 20;
