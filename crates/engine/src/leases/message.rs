//! What shards say to each other about limits. Any of it may be lost, doubled, late or out of order.

use minicbor::{Decode, Encode};
use model::id::Epoch;

use crate::leases::scope::Scope;

/// From a holder to the home: how it stands. Absolute numbers, so that hearing it twice changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Ask {
    #[n(0)]
    pub scope: Scope,
    /// The holder's. Words of an older one are ignored.
    #[n(1)]
    pub epoch: Epoch,
    /// Counts all asks of a holder's epoch, whatever their scope. Older ones are ignored.
    #[n(2)]
    pub seq: u64,
    /// From this word on the holder has no more than this, until it is granted more in answer to it. 0 for tokens.
    #[n(3)]
    pub held: u32,
    /// How many slots it would like to have in all; how many more tokens.
    #[n(4)]
    pub want: u32,
    /// The limit as the holder knows it. Absent where it has not looked lately.
    #[n(5)]
    pub limit: Option<u32>,
}

/// From the home to a holder, in answer to the ask `seq`; again with a larger `total` when more has become free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    #[n(0)]
    pub scope: Scope,
    #[n(1)]
    pub epoch: Epoch,
    #[n(2)]
    pub seq: u64,
    /// How many slots it has in all; how many tokens are added.
    #[n(3)]
    pub total: u32,
    /// Slots beyond this are to be given back as they become free, since others wait for them.
    #[n(4)]
    pub cap: Option<u32>,
}

/// From the home to a holder, without being asked: come down to `cap` as slots become free, and say how you stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Recall {
    #[n(0)]
    pub scope: Scope,
    /// The newest ask that the home knows. The cap counts only if the holder has said nothing since.
    #[n(1)]
    pub epoch: Epoch,
    #[n(2)]
    pub seq: u64,
    #[n(3)]
    pub cap: Option<u32>,
}

/// One word between shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Message {
    #[n(0)]
    Ask(#[n(0)] Ask),
    #[n(1)]
    Grant(#[n(0)] Grant),
    #[n(2)]
    Recall(#[n(0)] Recall),
}

impl Message {
    pub fn scope(&self) -> Scope {
        match self {
            Self::Ask(ask) => ask.scope,
            Self::Grant(grant) => grant.scope,
            Self::Recall(recall) => recall.scope,
        }
    }
}

/// What the home keeps on disk of each holder that has slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Record {
    /// The newest ask that was heard. Without it a late one could lower `total` after a restart of the home.
    #[n(0)]
    pub epoch: Epoch,
    #[n(1)]
    pub seq: u64,
    /// The holder has at most this.
    #[n(2)]
    pub total: u32,
}

#[cfg(test)]
mod tests {
    use model::codec;
    use proptest::prelude::*;

    use super::*;
    use crate::leases::scope::Kind;

    #[test]
    fn words_survive_the_way() {
        let scope = Scope::of_rule(Kind::Live, "acme", "gpu");
        let epoch = Epoch(u64::MAX);
        let words = [
            Message::Ask(Ask { scope, epoch, seq: 7, held: 1, want: u32::MAX, limit: Some(3) }),
            Message::Grant(Grant { scope, epoch, seq: u64::MAX, total: 2, cap: None }),
            Message::Recall(Recall { scope, epoch, seq: 0, cap: Some(0) }),
        ];
        for word in words {
            assert_eq!(codec::decode::<Message>(&codec::encode(&word)), Ok(word));
            assert_eq!(word.scope(), scope);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_as_a_word_end_without_a_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<Message>(&bytes);
            let _ = codec::decode::<Record>(&bytes);
        }
    }
}
