//! Options of a control node about other nodes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;

/// Default port for other nodes, TCP and UDP.
pub const CLUSTER_PORT: u16 = 7071;

/// How other nodes reach a control node, and when one of them is lost.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterOptions {
    /// Address for other nodes, TCP and UDP. Opened when the first join token is created.
    pub listen: SocketAddr,
    /// IP address under which other nodes reach this one. Default: that of `listen`, or of the default route.
    pub advertise: Option<IpAddr>,
    /// Timings of failure detection, the same on all nodes.
    pub profile: MembershipProfile,
    /// Time for the server process of a node to be replaced while its jobs run on. Then they are started elsewhere.
    pub adopt_grace_ms: u64,
    /// After a restart of the control node: time for a runner node to connect again. Then it is lost, and its jobs are
    /// started elsewhere.
    pub reconnect_grace_ms: u64,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLUSTER_PORT)),
            advertise: None,
            profile: MembershipProfile::Default,
            adopt_grace_ms: 30_000,
            reconnect_grace_ms: 120_000,
        }
    }
}

/// Timings of failure detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MembershipProfile {
    /// A dead node is found in less than three seconds.
    #[default]
    Default,
    /// Direct probe 5 s, indirect probe 3 s, suspicion 10 s.
    Classic,
}

impl MembershipProfile {
    pub(crate) fn timings(self) -> fabric::Profile {
        match self {
            Self::Default => fabric::Profile::default(),
            Self::Classic => fabric::Profile::classic(),
        }
    }
}
