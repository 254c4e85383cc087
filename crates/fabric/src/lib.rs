//! Cluster membership: who is in the cluster, who is alive, and who may act.
//!
//! - [`Membership`] is SWIM with suspicion, refutation and Lifeguard's health (the `foca` crate), without I/O and without a
//!   clock. A member goes from alive to probe failed, suspected and dead; every change has its time and its source.
//! - [`Driver`] runs it on a UDP socket, in a thread of its own. [`Sealed`] authenticates and encrypts every datagram.
//! - [`fence`] and [`leadership`] are functions of the member list.
//! - [`liveness`] decides when a runner node is lost; [`watch`] is all that a control node knows about its runner nodes.
//!
//! What is promised:
//!
//! - With the default [`Profile`], a dead node of five is dead everywhere within three seconds. A running node that others
//!   reach, directly or through each other, is not declared dead while at most a tenth of the packets is lost.
//! - A restarted node appears as [`Event::Restarted`]. Nothing that is said about an earlier incarnation affects a later one.
//! - A node that was stopped accuses nobody when it continues. One that was declared dead although it runs returns by itself.
//! - A graceful departure is announced to all members and is final at once.
//! - Member lists agree soon after the faults end. Until then they may differ: they are advice, and the store decides.

mod admission;
mod driver;
mod effects;
mod events;
pub mod fence;
mod health;
mod identity;
pub mod leadership;
pub mod limits;
pub mod liveness;
mod membership;
mod options;
mod packet;
mod profile;
mod random;
mod roster;
mod sealed;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
#[cfg(test)]
mod testing;
mod timers;
mod view;
pub mod watch;

pub use driver::{CommandError, Driver, DriverCounters, DriverOptions, Handle, StartError};
pub use identity::Role;
pub use membership::{Counters, Membership, Transmit};
pub use options::{Options, OptionsError};
pub use profile::{Profile, ProfileError};
pub use sealed::{ClusterId, ClusterKey, Keyring, OpenCounters, OpenError, SealError, Sealed};
pub use view::{Event, MemberView, Source, State};
