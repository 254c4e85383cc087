//! Identities: of a cluster, and of a node within it.
//!
//! A certificate names its node in a URI: `outlast://<cluster>/<role>/<node>`.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use model::id::NodeId;

use crate::{Error, random};

/// Id of a cluster: 128 random bits. Text form: 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ClusterId(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    [u8; 16],
);

impl ClusterId {
    pub(crate) fn random() -> Result<Self, Error> {
        random::bytes().map(Self)
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

impl FromStr for ClusterId {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hex {
            return Err(InvalidIdentity(text.to_owned()));
        }
        u128::from_str_radix(text, 16)
            .map(|number| Self(number.to_be_bytes()))
            .map_err(|_| InvalidIdentity(text.to_owned()))
    }
}

/// Secret that all nodes of a cluster share. It authenticates their UDP packets.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct ClusterKey(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    [u8; 32],
);

impl ClusterKey {
    pub(crate) fn random() -> Result<Self, Error> {
        random::bytes().map(Self)
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Without the key.
impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Control,
    Runner,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Runner => "runner",
        }
    }
}

/// What a certificate says about its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIdentity {
    pub cluster: ClusterId,
    pub node: NodeId,
    pub role: Role,
}

const SCHEME: &str = "outlast://";

impl fmt::Display for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.cluster, self.role.name(), self.node)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the identity of a node")]
pub struct InvalidIdentity(String);

impl FromStr for NodeIdentity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let invalid = || InvalidIdentity(text.chars().take(200).collect());
        let mut parts = text.strip_prefix(SCHEME).ok_or_else(invalid)?.split('/');
        let (cluster, role, node) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(cluster), Some(role), Some(node), None) => (cluster, role, node),
            _ => return Err(invalid()),
        };
        let role = match role {
            "control" => Role::Control,
            "runner" => Role::Runner,
            _ => return Err(invalid()),
        };
        Ok(Self { cluster: cluster.parse().map_err(|_| invalid())?, node: node.parse().map_err(|_| invalid())?, role })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn identities_round_trip_through_their_text(cluster: [u8; 16], node: u64, is_control: bool) {
            let role = if is_control { Role::Control } else { Role::Runner };
            let identity = NodeIdentity { cluster: ClusterId(cluster), node: NodeId(node), role };
            proptest::prop_assert_eq!(identity.to_string().parse::<NodeIdentity>(), Ok(identity));
        }

        #[test]
        fn any_text_is_rejected_or_round_trips(text in "(outlast://)?[0-9a-f+]{0,33}/?(control|runner|x)?/?[a-z_0-9/]{0,20}") {
            if let Ok(identity) = text.parse::<NodeIdentity>() {
                proptest::prop_assert_eq!(identity.to_string(), text);
            }
        }
    }
}
