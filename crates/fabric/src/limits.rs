//! Limits of the membership.

use std::num::NonZeroUsize;

use model::time::Millis;

/// Most members in the roster, dead ones included. Beyond it, the oldest departed one makes room, else the newcomer waits.
pub const MEMBERS_MAX: usize = 2_048;

/// Most bytes of a datagram. Passes every IPv6 network without fragmentation.
pub const DATAGRAM_BYTES_MAX: usize = 1_232;

/// Most bytes of a packet before it is sealed.
pub(crate) const PACKET_BYTES_MAX: NonZeroUsize =
    NonZeroUsize::new(DATAGRAM_BYTES_MAX - crate::sealed::OVERHEAD_BYTES).unwrap();

/// Most events that wait to be taken. Beyond it, the oldest are dropped, and their number is an event.
pub const EVENTS_MAX: usize = 8_192;

/// Most packets that wait to be sent. Beyond it, new ones are dropped like on a busy network.
pub const PACKETS_MAX: usize = 4_096;

/// Most join addresses.
pub const JOIN_ADDRESSES_MAX: usize = 64;

/// Members that hear of a graceful departure directly. The others hear of it from them.
pub(crate) const FAREWELL_MEMBERS_MAX: usize = 128;

/// Join addresses per attempt, and dead members per attempt.
pub(crate) const JOIN_ADDRESSES_AT_ONCE: usize = 8;
pub(crate) const JOIN_DEAD_AT_ONCE: usize = 3;

/// Datagrams received before timers are looked at.
pub(crate) const DATAGRAMS_AT_ONCE: usize = 256;

/// Commands that wait for the thread of the membership.
pub(crate) const COMMANDS_MAX: usize = 256;

/// Timers handled in one call. A clock that runs away does not block the caller.
pub(crate) const TIMERS_AT_ONCE: usize = 1_024;

/// A departed member is forgotten after this time; a dead one only if it is a runner. A dead control node counts for
/// majorities until an operator removes it.
pub(crate) const FORGET_LEFT_AFTER: Millis = Millis::from_secs(60 * 60);
pub(crate) const FORGET_DEAD_RUNNER_AFTER: Millis = Millis::from_secs(24 * 60 * 60);
pub(crate) const SWEEP_INTERVAL: Millis = Millis::from_secs(60);
