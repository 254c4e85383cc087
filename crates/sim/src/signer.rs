//! Signatures of audit checkpoints. Answers arrive late, twice or never.

use engine::SignRequest;
use model::audit::{Checkpoint, PublicKey, Signature, SignedCheckpoint};
use model::id::Epoch;
use model::spec::Digest;

use crate::coverage::Fault;
use crate::invariants::{self, Checked};
use crate::world::{Event, Inbound, Reply, World};

const KEY: PublicKey = PublicKey([9; 32]);

/// Not a real signature: a hash that every change of the checkpoint changes.
pub fn sign(checkpoint: Checkpoint) -> SignedCheckpoint {
    let digest = Digest::of(&checkpoint.bytes_to_sign()).0;
    let mut signature = [0; 64];
    signature.chunks_mut(digest.len()).for_each(|part| part.copy_from_slice(&digest));
    SignedCheckpoint { checkpoint, public_key: KEY, signature: Signature(signature) }
}

pub fn is_valid(signed: &SignedCheckpoint) -> bool {
    *signed == sign(signed.checkpoint)
}

impl World {
    /// A shard requests a signature. The answer arrives later, or is lost.
    pub(crate) fn sign_audit(&mut self, (shard, epoch): (usize, Epoch), request: &SignRequest) -> Checked {
        invariants::invariant_checkpoints_follow_valid_ones(self.shard_id(shard), request)?;
        if self.rng.chance(self.scenario.network.lose) {
            self.coverage.count_fault(Fault::SignatureLost);
            return Ok(());
        }
        let twice = self.rng.chance(self.scenario.network.duplicate);
        if twice {
            self.coverage.count_fault(Fault::SignatureDuplicated);
        }
        for _ in 0..=u8::from(twice) {
            let delay = self.network_delay();
            let reply = Reply::AuditSigned(Box::new(sign(request.checkpoint)));
            self.after(delay, Event::Deliver { shard, inbound: Inbound::Reply { epoch, reply } });
        }
        Ok(())
    }
}
