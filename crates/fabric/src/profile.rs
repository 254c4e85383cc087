//! Timings of failure detection.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::{Config, PeriodicParams};
use model::time::Millis;

use crate::limits::PACKET_BYTES_MAX;

/// Clusters up to this size wait for [`Profile::suspicion`]. In larger ones news takes longer to spread.
const SUSPICION_NODES: usize = 10;

/// Timings of failure detection. All nodes of a cluster have the same.
///
/// A member is probed directly, after [`probe_timeout`](Self::probe_timeout) through other members, and is suspected at
/// the end of the [`probe_period`](Self::probe_period). It is dead if it has not refuted the suspicion after
/// [`suspicion`](Self::suspicion).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Time from one probe to the next. One member is probed at a time, in random order, each once per round.
    pub probe_period: Millis,
    /// Wait for the answer to a direct probe. Less than the period: the rest of it is for the indirect probes.
    pub probe_timeout: Millis,
    /// Wait for a refutation in a cluster of up to 10 nodes. Grows with the logarithm of the size.
    pub suspicion: Millis,
    /// Members that probe on behalf of another one.
    pub indirect_probes: u8,
    /// Time between packets that spread news. None are sent without news.
    pub gossip_interval: Millis,
    /// Members that receive such a packet.
    pub gossip_fanout: u8,
    /// Time between two comparisons of the member list with a random member.
    pub announce_interval: Millis,
    /// Time between two attempts to reach members that are dead. Heals partitions.
    pub announce_to_dead_interval: Millis,
    /// Time between two attempts to join, while no other member is alive.
    pub join_interval: Millis,
    /// Time between two announcements to the join addresses without an alive member.
    pub reseed_interval: Millis,
}

/// Timings that cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("the timing `{0}` is 0")]
    Zero(&'static str),
    #[error("`probe_timeout` ({timeout} ms) must be less than `probe_period` ({period} ms)")]
    TimeoutTooLong { timeout: u64, period: u64 },
}

/// For a local network: a dead node of a small cluster is found in 1.5 to 2.5 seconds.
impl Default for Profile {
    fn default() -> Self {
        Self {
            probe_period: Millis(200),
            probe_timeout: Millis(80),
            suspicion: Millis(1_000),
            indirect_probes: 3,
            gossip_interval: Millis(100),
            gossip_fanout: 3,
            announce_interval: Millis(5_000),
            announce_to_dead_interval: Millis(1_000),
            join_interval: Millis(500),
            reseed_interval: Millis(2_000),
        }
    }
}

impl Profile {
    /// The timings of the reference system: direct probe 5 s, indirect probe 3 s, suspicion 10 s. One probe is under way
    /// at a time, so the probe interval is the sum of both, 8 s, and not the 2 s of the reference.
    pub fn classic() -> Self {
        Self {
            probe_period: Millis(8_000),
            probe_timeout: Millis(5_000),
            suspicion: Millis(10_000),
            gossip_interval: Millis(500),
            announce_interval: Millis(30_000),
            announce_to_dead_interval: Millis(5_000),
            join_interval: Millis(2_000),
            reseed_interval: Millis(20_000),
            ..Self::default()
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ProfileError> {
        let timings = [
            ("probe_timeout", self.probe_timeout.0),
            ("suspicion", self.suspicion.0),
            ("indirect_probes", u64::from(self.indirect_probes)),
            ("gossip_interval", self.gossip_interval.0),
            ("gossip_fanout", u64::from(self.gossip_fanout)),
            ("announce_interval", self.announce_interval.0),
            ("announce_to_dead_interval", self.announce_to_dead_interval.0),
            ("join_interval", self.join_interval.0),
            ("reseed_interval", self.reseed_interval.0),
        ];
        if let Some((name, _)) = timings.iter().find(|(_, number)| *number == 0) {
            return Err(ProfileError::Zero(name));
        }
        if self.probe_timeout >= self.probe_period {
            return Err(ProfileError::TimeoutTooLong { timeout: self.probe_timeout.0, period: self.probe_period.0 });
        }
        Ok(())
    }

    /// The wait for a refutation in a cluster of `nodes`.
    pub fn suspicion_of(&self, nodes: usize) -> Millis {
        let scale = (nodes.max(SUSPICION_NODES) as f64).log10();
        Millis((self.suspicion.0 as f64 * scale) as u64)
    }

    /// How often a node repeats a piece of news in a cluster of `nodes`: enough for all to hear it with heavy loss.
    fn transmissions_of(nodes: usize) -> NonZeroU8 {
        let count = 6.0 + 4.0 * ((nodes + 1) as f64).log10();
        NonZeroU8::new(count.min(64.0) as u8).unwrap_or(NonZeroU8::MIN)
    }

    /// Foca's configuration for a cluster of `nodes`.
    pub(crate) fn config(&self, nodes: usize) -> Config {
        let periodic = |interval: Millis, fanout: u8| PeriodicParams {
            frequency: Duration::from_millis(interval.0),
            num_members: at_least_one(fanout),
        };
        Config {
            probe_period: Duration::from_millis(self.probe_period.0),
            probe_rtt: Duration::from_millis(self.probe_timeout.0),
            num_indirect_probes: at_least_one(self.indirect_probes),
            max_transmissions: Self::transmissions_of(nodes),
            suspect_to_down_after: Duration::from_millis(self.suspicion_of(nodes).0),
            // The roster decides what is forgotten.
            remove_down_after: None,
            max_packet_size: PACKET_BYTES_MAX,
            notify_down_members: true,
            periodic_announce: Some(periodic(self.announce_interval, 1)),
            periodic_announce_to_down_members: Some(periodic(self.announce_to_dead_interval, 2)),
            periodic_gossip: Some(periodic(self.gossip_interval, self.gossip_fanout)),
        }
    }
}

fn at_least_one(count: u8) -> NonZeroUsize {
    NonZeroUsize::new(usize::from(count)).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    // FEATURES: A5
    #[test]
    fn suspicion_grows_with_the_logarithm_of_the_cluster() {
        let profile = Profile::default();
        assert_eq!([3, 10, 100, 1_000].map(|nodes| profile.suspicion_of(nodes).0), [1_000, 1_000, 2_000, 3_000]);
    }

    #[test]
    fn a_timeout_as_long_as_the_period_is_rejected() {
        assert_eq!(Profile::classic().validate(), Ok(()));
        assert_eq!(Profile::default().validate(), Ok(()));
        let profile = Profile { probe_timeout: Millis(200), ..Profile::default() };
        assert_eq!(profile.validate(), Err(ProfileError::TimeoutTooLong { timeout: 200, period: 200 }));
        let profile = Profile { suspicion: Millis(0), ..Profile::default() };
        assert_eq!(profile.validate(), Err(ProfileError::Zero("suspicion")));
    }
}
