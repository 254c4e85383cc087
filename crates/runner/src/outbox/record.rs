//! Encoding of the outbox's journal: CBOR with numbered fields.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::codec::{self, DecodeError};
use model::id::ShardId;
use model::job::Outcome;
use model::message::AttemptRef;

/// The end of an attempt that its shard has not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Decode)]
pub(crate) struct StoredEnd {
    #[n(0)]
    pub shard: ShardId,
    #[n(1)]
    pub attempt_ref: AttemptRef,
    #[n(2)]
    pub outcome: Outcome,
}

impl StoredEnd {
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        codec::decode(bytes)
    }
}

/// As [`StoredEnd`], borrowed.
#[derive(Encode)]
struct BorrowedEnd<'a> {
    #[n(0)]
    shard: ShardId,
    #[n(1)]
    attempt_ref: AttemptRef,
    #[n(2)]
    outcome: &'a Outcome,
}

pub(crate) fn encode_end(shard: ShardId, attempt_ref: AttemptRef, outcome: &Outcome) -> Vec<u8> {
    codec::encode(&BorrowedEnd { shard, attempt_ref, outcome })
}

/// One entry of the journal. The acknowledgements come first: they are about ends in earlier entries.
#[derive(Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Batch {
    #[n(0)]
    pub acknowledged: Vec<AttemptRef>,
    /// Each one is a [`StoredEnd`].
    #[n(1)]
    pub ends: Vec<ByteVec>,
    /// Entries up to this position are obsolete: what counts of them was written again.
    #[n(2)]
    pub obsolete: Option<u64>,
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, JobId};
    use model::job::End;
    use model::json::Json;

    use super::*;

    #[test]
    fn an_end_decodes_to_what_was_encoded() {
        let outcome = Outcome {
            exit_code: Some(3),
            message: Some("it exited with code 3".to_owned()),
            result: Some(Json::null()),
            ..Outcome::of(End::Error)
        };
        let attempt_ref = AttemptRef { job: JobId(7), attempt: Attempt(2) };
        let encoded = encode_end(ShardId(1), attempt_ref, &outcome);
        assert_eq!(StoredEnd::decode(&encoded).unwrap(), StoredEnd { shard: ShardId(1), attempt_ref, outcome });
        let batch = Batch { acknowledged: vec![attempt_ref], ends: vec![encoded.into()], obsolete: Some(3) };
        assert_eq!(codec::decode::<Batch>(&codec::encode(&batch)).unwrap(), batch);
    }

    proptest::proptest! {
        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<Batch>(&bytes);
            let _ = StoredEnd::decode(&bytes);
        }
    }
}
