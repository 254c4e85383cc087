//! Messages between shards. Any of them may be lost, duplicated, late or reordered.

use minicbor::{Decode, Encode};
use model::id::ShardId;
use model::spec::{Digest, KeyHash};

use crate::claims::ClaimId;
use crate::leases;
use crate::shard::Shard;
use crate::step::Step;

/// A message of one shard to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum PeerMessage {
    /// About tenant limits.
    #[n(0)]
    Lease(#[n(0)] leases::Message),
    /// To the home of an idempotency key: the sender is about to create what a request with this digest asks for.
    #[n(1)]
    Claim {
        #[n(0)]
        key: KeyHash,
        #[n(1)]
        digest: Digest,
        #[n(2)]
        claim: ClaimId,
    },
    /// From the home of a key, in answer to a claim: the key belongs to requests with this digest.
    #[n(2)]
    Claimed {
        #[n(0)]
        key: KeyHash,
        #[n(1)]
        digest: Digest,
        #[n(2)]
        claim: ClaimId,
    },
}

impl Shard {
    pub(crate) fn receive_from_shard(&mut self, from: ShardId, message: PeerMessage, step: &mut Step) {
        match message {
            PeerMessage::Lease(message) => self.ready.leases_mut().handle(from, &message),
            PeerMessage::Claim { key, digest, claim } => self.receive_claim(from, key, digest, claim, step),
            PeerMessage::Claimed { key, digest, claim } => self.claimed(key, digest, claim, step),
        }
    }
}
