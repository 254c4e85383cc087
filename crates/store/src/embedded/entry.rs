//! Journal entries of the store: commits, opened shards, documents and checkpoints.

use bytes::Bytes;
use model::id::{Epoch, NodeId, ShardId};

use crate::Position;

const VERSION: u8 = 1;
const COMMIT: u8 = 1;
const OPEN_SHARD: u8 = 2;
const CHECKPOINT: u8 = 3;
const DOCUMENT: u8 = 4;

/// Version, kind, shard, epoch.
pub(crate) const HEAD_BYTES: usize = 12;

/// A decoded journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JournalEntry {
    Commit {
        shard: ShardId,
        batch: Bytes,
    },
    OpenShard {
        shard: ShardId,
        epoch: Epoch,
        owner: NodeId,
    },
    /// A document was written, or deleted.
    Document {
        name: String,
        value: Option<Bytes>,
    },
    /// The tables durably contain all entries up to `applied`.
    Checkpoint {
        applied: Position,
    },
}

pub(crate) fn commit_head(shard: ShardId, epoch: Epoch) -> [u8; HEAD_BYTES] {
    head(COMMIT, shard, epoch.0)
}

pub(crate) fn open_shard(shard: ShardId, epoch: Epoch, owner: NodeId) -> [u8; HEAD_BYTES + 8] {
    let mut entry = [0; HEAD_BYTES + 8];
    entry[..HEAD_BYTES].copy_from_slice(&head(OPEN_SHARD, shard, epoch.0));
    entry[HEAD_BYTES..].copy_from_slice(&owner.0.to_le_bytes());
    entry
}

pub(crate) fn checkpoint(applied: Position) -> [u8; HEAD_BYTES] {
    head(CHECKPOINT, ShardId(0), applied.0)
}

/// The entry of a document without its value, which follows.
pub(crate) fn document_head(name: &str, is_deleted: bool) -> Vec<u8> {
    let mut entry = head(DOCUMENT, ShardId(0), u64::from(is_deleted)).to_vec();
    entry.push(u8::try_from(name.len()).expect("names of documents have a limit"));
    entry.extend_from_slice(name.as_bytes());
    entry
}

fn head(kind: u8, shard: ShardId, number: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[0] = VERSION;
    head[1] = kind;
    head[2..4].copy_from_slice(&shard.0.to_le_bytes());
    head[4..12].copy_from_slice(&number.to_le_bytes());
    head
}

/// Decodes an entry. The journal has verified its bytes, so an error means that another version wrote it.
pub(crate) fn decode(entry: &Bytes) -> Result<JournalEntry, &'static str> {
    let Some((head, body)) = entry.split_first_chunk::<HEAD_BYTES>() else {
        return Err("the entry is too short");
    };
    if head[0] != VERSION {
        return Err(
            "the entry has a different format version. Start the version of outlast that wrote it, or a newer one",
        );
    }
    let shard = ShardId(u16::from_le_bytes([head[2], head[3]]));
    let number = u64::from_le_bytes([head[4], head[5], head[6], head[7], head[8], head[9], head[10], head[11]]);
    match head[1] {
        COMMIT => Ok(JournalEntry::Commit { shard, batch: entry.slice(HEAD_BYTES..) }),
        OPEN_SHARD => {
            let owner = body.try_into().map_err(|_| "the owner of a shard has the wrong length")?;
            Ok(JournalEntry::OpenShard { shard, epoch: Epoch(number), owner: NodeId(u64::from_le_bytes(owner)) })
        }
        DOCUMENT => {
            let malformed = "a document is malformed";
            let (length, rest) = body.split_first().ok_or(malformed)?;
            let (name, value) = rest.split_at_checked(usize::from(*length)).ok_or(malformed)?;
            let name = std::str::from_utf8(name).map_err(|_| malformed)?.to_owned();
            if name.len() > crate::DOCUMENT_NAME_BYTES_MAX {
                return Err(malformed);
            }
            Ok(JournalEntry::Document { name, value: (number == 0).then(|| entry.slice_ref(value)) })
        }
        CHECKPOINT => Ok(JournalEntry::Checkpoint { applied: Position(number) }),
        _ => Err("this version does not know the kind of the entry. Start a newer version of outlast"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let opened = open_shard(ShardId(3), Epoch(9), NodeId(77));
        let expected = JournalEntry::OpenShard { shard: ShardId(3), epoch: Epoch(9), owner: NodeId(77) };
        assert_eq!(decode(&Bytes::copy_from_slice(&opened)), Ok(expected));
        let checkpoint = checkpoint(Position(5));
        assert_eq!(decode(&Bytes::copy_from_slice(&checkpoint)), Ok(JournalEntry::Checkpoint { applied: Position(5) }));
        let document = [&document_head("name", false)[..], b"value"].concat();
        let expected = JournalEntry::Document { name: "name".to_owned(), value: Some(Bytes::from_static(b"value")) };
        assert_eq!(decode(&Bytes::from(document)), Ok(expected));
        let deleted = JournalEntry::Document { name: "name".to_owned(), value: None };
        assert_eq!(decode(&Bytes::from(document_head("name", true))), Ok(deleted));
        assert!(decode(&Bytes::from_static(&[2; 12])).is_err());
        assert!(decode(&Bytes::from_static(&[1; 4])).is_err());
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_are_decoded_or_rejected(bytes: Vec<u8>) {
            let _ = decode(&Bytes::from(bytes));
        }
    }
}
