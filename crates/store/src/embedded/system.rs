//! Records of the system table: epoch and owner of each shard, and documents.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::{Epoch, NodeId, ShardId};

use crate::key::FullKey;
use crate::{Document, Position, Version};

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

/// Tells the keys of documents from those of owners.
const DOCUMENT_PREFIX: u8 = 1;

pub(crate) fn document_key(name: &str) -> FullKey {
    FullKey::of(ShardId(0), &[&[DOCUMENT_PREFIX], name.as_bytes()].concat())
}

/// The position of the journal entry is the version: no two writes of a document have the same.
pub(crate) fn encode_document(position: Position, value: &[u8]) -> Bytes {
    let mut record = BytesMut::with_capacity(8 + value.len());
    record.put_u64_le(position.0);
    record.put_slice(value);
    record.freeze()
}

pub(crate) fn decode_document(mut record: Bytes) -> Option<Document> {
    let version = Version(record.try_get_u64_le().ok()?);
    Some(Document { version, value: record })
}
