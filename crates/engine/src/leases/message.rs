//! Messages between shards about limits. Any of them may be lost, duplicated, late or reordered.

use minicbor::{Decode, Encode};
use model::id::Epoch;

use crate::leases::scope::Scope;

/// From a holder to the home: its current state and demand. Absolute numbers, so duplicates have no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct LeaseRequest {
    #[n(0)]
    pub scope: Scope,
    /// The holder's epoch. Messages of older epochs are ignored.
    #[n(1)]
    pub epoch: Epoch,
    /// Numbers all requests of a holder's epoch, across scopes. Older requests are ignored.
    #[n(2)]
    pub seq: u64,
    /// The holder has at most this many slots from this message on, until a grant answers it. 0 for tokens.
    #[n(3)]
    pub held: u32,
    /// The demand. Slots: in total. Tokens: in addition.
    #[n(4)]
    pub want: u32,
    /// The limit as the holder knows it. Absent if it may be outdated.
    #[n(5)]
    pub limit: Option<u32>,
}

/// From the home to a holder, in answer to the request `seq`. Repeated with a larger `total` when slots become free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    #[n(0)]
    pub scope: Scope,
    #[n(1)]
    pub epoch: Epoch,
    #[n(2)]
    pub seq: u64,
    /// Slots: granted in total. Tokens: granted in addition.
    #[n(3)]
    pub total: u32,
    /// Slots beyond this are to be returned as they become free: others wait for them.
    #[n(4)]
    pub cap: Option<u32>,
}

/// From the home to a holder, unrequested: return slots beyond `cap` as they become free, and send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Recall {
    #[n(0)]
    pub scope: Scope,
    /// The newest request that the home knows. The cap is void if the holder has sent a newer one.
    #[n(1)]
    pub epoch: Epoch,
    #[n(2)]
    pub seq: u64,
    #[n(3)]
    pub cap: Option<u32>,
}

/// One message between shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Message {
    #[n(0)]
    Request(#[n(0)] LeaseRequest),
    #[n(1)]
    Grant(#[n(0)] Grant),
    #[n(2)]
    Recall(#[n(0)] Recall),
}

impl Message {
    pub fn scope(&self) -> Scope {
        match self {
            Self::Request(request) => request.scope,
            Self::Grant(grant) => grant.scope,
            Self::Recall(recall) => recall.scope,
        }
    }
}

/// The home's record of a holder with slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Record {
    /// The newest request. Without it a late one could lower `total` after a restart of the home.
    #[n(0)]
    pub epoch: Epoch,
    #[n(1)]
    pub seq: u64,
    /// Upper bound of the slots it holds.
    #[n(2)]
    pub total: u32,
}

#[cfg(test)]
mod tests {
    use model::codec;
    use proptest::prelude::*;

    use super::*;
    use crate::leases::scope::LimitKind;

    #[test]
    fn messages_round_trip() {
        let scope = Scope::of_rule(LimitKind::Live, "acme", "gpu");
        let epoch = Epoch(u64::MAX);
        let messages = [
            Message::Request(LeaseRequest { scope, epoch, seq: 7, held: 1, want: u32::MAX, limit: Some(3) }),
            Message::Grant(Grant { scope, epoch, seq: u64::MAX, total: 2, cap: None }),
            Message::Recall(Recall { scope, epoch, seq: 0, cap: Some(0) }),
        ];
        for message in messages {
            assert_eq!(codec::decode::<Message>(&codec::encode(&message)), Ok(message));
            assert_eq!(message.scope(), scope);
        }
    }

    proptest! {
        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<Message>(&bytes);
            let _ = codec::decode::<Record>(&bytes);
        }
    }
}
