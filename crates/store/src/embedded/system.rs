//! Records of the system table: epoch and owner of each shard.

use bytes::{BufMut, Bytes, BytesMut};
use model::id::{Epoch, NodeId};

pub(crate) const OWNER_KEY: &[u8] = b"owner";

pub(crate) fn encode_owner(epoch: Epoch, owner: NodeId) -> Bytes {
    let mut value = BytesMut::with_capacity(16);
    value.put_u64_le(epoch.0);
    value.put_u64_le(owner.0);
    value.freeze()
}

/// Decodes the epoch of an owner record. Later versions may append fields.
pub(crate) fn decode_epoch(value: &[u8]) -> Option<Epoch> {
    let (epoch, _) = value.split_first_chunk::<8>()?;
    Some(Epoch(u64::from_le_bytes(*epoch)))
}
