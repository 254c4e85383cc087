//! The first message of each side of a link: who it is, and which protocol versions it speaks.

use std::fmt;

use bytes::Bytes;
use model::id::{Incarnation, NodeId};

use crate::limits::{TEXT_BYTES_MAX, VERSION_BYTES_MAX};
use crate::refusal::{Refusal, RefusalKind};
use crate::{Error, NodeIdentity, Role, proto, random};

/// The protocol versions that this build speaks.
pub const PROTOCOL: Versions = Versions { min: 1, max: 1 };

/// A range of protocol versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub min: u32,
    pub max: u32,
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "protocol version {}", self.max),
            false => write!(f, "protocol versions {} to {}", self.min, self.max),
        }
    }
}

/// 16 random bytes of a process. They tell two processes of one incarnation apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessNonce(pub [u8; 16]);

impl ProcessNonce {
    pub fn random() -> Result<Self, Error> {
        random::bytes().map(Self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub protocol: Versions,
    pub software_version: String,
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub process: ProcessNonce,
}

impl Hello {
    pub(crate) fn to_proto(&self) -> proto::Hello {
        proto::Hello {
            protocol_min: self.protocol.min,
            protocol_max: self.protocol.max,
            software_version: self.software_version.clone(),
            node_id: self.node.0,
            incarnation: self.incarnation.0,
            process_nonce: Bytes::copy_from_slice(&self.process.0),
        }
    }

    pub(crate) fn from_proto(hello: proto::Hello) -> Result<Self, Refusal> {
        let invalid = |what: &str| Refusal::invalid(format!("invalid hello: {what}"));
        let protocol = Versions { min: hello.protocol_min, max: hello.protocol_max };
        if protocol.min == 0 || protocol.min > protocol.max {
            return Err(invalid("an empty range of protocol versions"));
        }
        if hello.software_version.len() > VERSION_BYTES_MAX {
            return Err(invalid("a software version of more than 128 bytes"));
        }
        let process = hello.process_nonce.as_ref().try_into().map_err(|_| invalid("a nonce of other than 16 bytes"))?;
        Ok(Self {
            protocol,
            software_version: hello.software_version,
            node: NodeId(hello.node_id),
            incarnation: Incarnation(hello.incarnation),
            process: ProcessNonce(process),
        })
    }

    /// The newest protocol version that both sides speak. `peer` is the owner of this hello's certificate.
    pub(crate) fn agree(&self, own: &Self, peer: &NodeIdentity) -> Result<u32, Refusal> {
        if self.node != peer.node {
            let text = format!("the hello is of {}, but the certificate is of {}", self.node, peer.node);
            return Err(Refusal::new(RefusalKind::NotAllowed, text));
        }
        let version = self.protocol.max.min(own.protocol.max);
        if version >= self.protocol.min.max(own.protocol.min) {
            return Ok(version);
        }
        let describe = |hello: &Self| {
            let software: String = hello.software_version.chars().filter(|letter| !letter.is_control()).collect();
            format!("{} (Outlast {software}) speaks {}", hello.node, hello.protocol)
        };
        let older = if self.protocol.max < own.protocol.max { self } else { own };
        let what = match (older.node == self.node, peer.role) {
            (true, Role::Runner) => "runner ",
            (true, Role::Control) => "control node ",
            (false, _) => "",
        };
        let text = format!("{}, {}: upgrade {what}{}", describe(self), describe(own), older.node);
        Err(Refusal::new(RefusalKind::Incompatible, text.chars().take(TEXT_BYTES_MAX).collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::ClusterId;

    fn hello(node: u64, min: u32, max: u32) -> Hello {
        Hello {
            protocol: Versions { min, max },
            software_version: format!("0.{max}"),
            node: NodeId(node),
            incarnation: Incarnation(1),
            process: ProcessNonce([1; 16]),
        }
    }

    fn identity(node: u64) -> NodeIdentity {
        NodeIdentity { cluster: ClusterId::from_bytes([0; 16]), node: NodeId(node), role: Role::Runner }
    }

    #[test]
    fn the_newest_common_version_is_used() {
        assert_eq!(hello(2, 1, 4).agree(&hello(1, 3, 9), &identity(2)), Ok(4));
        assert_eq!(hello(2, 1, 1).agree(&hello(1, 1, 1), &identity(2)), Ok(1));
    }

    #[test]
    fn the_older_side_is_to_be_upgraded() {
        let refusal = hello(2, 1, 2).agree(&hello(1, 3, 4), &identity(2)).unwrap_err();
        assert_eq!(refusal.kind(), RefusalKind::Incompatible);
        assert!(refusal.text().ends_with(&format!("upgrade runner {}", NodeId(2))), "{refusal}");
        let refusal = hello(2, 5, 6).agree(&hello(1, 3, 4), &identity(2)).unwrap_err();
        assert!(refusal.text().ends_with(&format!("upgrade {}", NodeId(1))), "{refusal}");
    }

    #[test]
    fn a_hello_of_another_node_is_refused() {
        let refusal = hello(2, 1, 1).agree(&hello(1, 1, 1), &identity(3)).unwrap_err();
        assert_eq!(refusal.kind(), RefusalKind::NotAllowed);
    }

    proptest! {
        #[test]
        fn hellos_round_trip(min in 1u32..5, more in 0u32..5, software in "[ -~]{0,40}", node: u64, process: [u8; 16]) {
            let protocol = Versions { min, max: min + more };
            let (node, incarnation) = (NodeId(node), Incarnation(node));
            let hello = Hello { protocol, software_version: software, node, incarnation, process: ProcessNonce(process) };
            let bytes = hello.to_proto().encode_to_vec();
            prop_assert_eq!(Hello::from_proto(proto::Hello::decode(&bytes[..]).unwrap()), Ok(hello));
        }

        #[test]
        fn any_bytes_are_refused_or_a_valid_hello(bytes: Vec<u8>) {
            if let Ok(decoded) = proto::Hello::decode(&bytes[..])
                && let Ok(hello) = Hello::from_proto(decoded)
            {
                prop_assert!(hello.protocol.min >= 1 && hello.protocol.min <= hello.protocol.max);
            }
        }
    }
}
