//! All limits of this crate, with their units. Each has a test at the limit.
//!
//! Configurable limits are defaults of [`crate::Options`] or [`crate::breaker::Settings`].

use std::time::Duration;

use model::time::Millis;

/// One call, from connecting to the answer.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// Largest configurable timeout.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Concurrent calls.
pub const IN_FLIGHT_MAX_DEFAULT: usize = 256;
/// Largest configurable number of concurrent calls.
pub const IN_FLIGHT_MAX_MAX: usize = 65_536;
/// Calls waiting for one in flight to end. They wait for at most one call timeout.
pub const WAITING_MAX_DEFAULT: usize = 16_384;
/// A job in JSON. The whole request fits into 4 MiB, the default limit of gRPC servers.
pub const JOB_BYTES_MAX_DEFAULT: usize = 3 << 20;

/// Consecutive failures that open the breaker.
pub const FAILURES_TO_OPEN: u32 = 3;
/// Time that the breaker stays open.
pub const OPEN_FOR: Millis = Millis::from_secs(30);
/// Concurrent calls while half-open.
pub const PROBES_MAX: u32 = 3;
/// Successes that close a half-open breaker.
pub const SUCCESSES_TO_CLOSE: u32 = 2;
/// After this time an unreported probe no longer blocks others.
pub const PROBE_TIMEOUT: Millis = Millis::from_secs(30);

/// One encoded answer. A larger one is not read.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The `policy_version` of an answer.
pub const VERSION_BYTES_MAX: usize = 128;
/// Longest throttle that a policy service may request.
pub const THROTTLE_MAX: Millis = Millis::from_secs(24 * 3600);
/// A throttle without a time.
pub const THROTTLE_DEFAULT: Millis = Millis::from_secs(5);
/// Concurrent jobs of one tenant under one rule.
pub const CONCURRENT_MAX: u32 = 1_000_000;
/// Lines of an explanation, each up to [`model::limits::MESSAGE_BYTES_MAX`]. The rest is cut off.
pub const TRACE_LINES_MAX: usize = 256;
/// Artifacts listed in a request. The others are only counted.
pub const ARTIFACTS_LISTED_MAX: usize = 1_000;
/// A certificate or key file.
pub const PEM_BYTES_MAX: u64 = 1 << 20;
