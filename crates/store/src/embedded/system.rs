//! What the store remembers about shards: the newest epoch and its owner.

use bytes::{BufMut, Bytes, BytesMut};
use model::id::{Epoch, NodeId};

pub(crate) const OWNER_KEY: &[u8] = b"owner";

pub(crate) fn encode_owner(epoch: Epoch, owner: NodeId) -> Bytes {
    let mut value = BytesMut::with_capacity(16);
    value.put_u64_le(epoch.0);
    value.put_u64_le(owner.0);
    value.freeze()
}

/// The epoch of an encoded owner; later versions may append to it.
pub(crate) fn decode_epoch(value: &[u8]) -> Option<Epoch> {
    let (epoch, _) = value.split_first_chunk::<8>()?;
    Some(Epoch(u64::from_le_bytes(*epoch)))
}
