//! Limits, with their units.

use std::time::Duration;

/// Lifetime of a certificate.
pub const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// A certificate is valid this long before its issue, for nodes whose clock is behind.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(3600);
/// The file of an authority or identity.
pub(crate) const SECRET_FILE_BYTES_MAX: u64 = 64 << 10;

/// One gRPC message between members. A job's spec and a result have up to 8 MiB.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// One gRPC message of a client without a certificate.
pub const JOIN_BYTES_MAX: usize = 64 << 10;
/// One envelope: a message without its frame.
pub const ENVELOPE_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1024;
/// Envelopes that are sent together. A larger envelope is sent alone.
pub const BATCH_BYTES_MAX: usize = 256 << 10;
/// Memory that an envelope in a queue takes besides its bytes.
pub(crate) const ENVELOPE_OVERHEAD_BYTES: usize = 64;
/// Part of an object or answer. Larger ones are split.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// HTTP/2 headers of a request or response.
pub(crate) const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Name, address or text in a request.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Addresses that a joining node announces.
pub const ADDRESSES_MAX: usize = 16;
/// Software version in a hello.
pub const VERSION_BYTES_MAX: usize = 128;
/// Kind and id of an object, name of a method.
pub const NAME_BYTES_MAX: usize = 1024;
/// Requests of one control node to one peer that wait for their answers.
pub const ASKS_MAX: usize = 64;
/// Challenges of one node that were not used yet. A further one replaces the oldest.
pub(crate) const TETHER_CHALLENGES_PER_NODE_MAX: usize = 4;
/// Time to use a challenge.
pub(crate) const TETHER_CHALLENGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Hello line of a tether.
pub(crate) const TETHER_HELLO_BYTES_MAX: usize = 256;
/// Idle time before the first keep-alive probe of a tether, and between probes.
pub(crate) const TETHER_KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Unanswered probes after which a tether is closed.
pub(crate) const TETHER_PROBES_MAX: u32 = 3;
