//! Batches: the ordered writes and events of one commit in one contiguous buffer.
//!
//! The engine writes a batch, the journal stores it unchanged, the store's tables and the event stream read it.
//! Records are encoded once, while they are in the CPU cache.

use crate::codec::DecodeError;

/// The ordered maps of a shard. The number identifies the keyspace on disk: never reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Keyspace {
    /// job id → record of a non-terminal job. Read completely at start.
    Live = 1,
    /// job id → record of a terminal job, until its retention ends.
    Done = 2,
    /// job id → spec that is too large to be rewritten with every transition.
    Spec = 3,
    /// queue id, job id → nothing. All jobs of a queue, oldest first.
    ByQueue = 4,
    /// state, job id → nothing. Terminal jobs other than succeeded ones.
    ByState = 5,
    /// queue id → queue record.
    Queues = 6,
    /// day, key hash → idempotency entry.
    Keys = 7,
    /// runner id → last applied message.
    Runners = 8,
    /// Metadata of the shard, and the index of queue tokens and schedule names.
    Meta = 9,
    /// job id → dead letter.
    DeadLetters = 10,
    /// number → audit entry, hash-chained.
    Audit = 11,
    /// job id → attempt number. Succeeded jobs with a pending content scan.
    Scans = 12,
    /// scope (limit kind, tenant, rule), shard → slots granted to that shard. Stored by the home shard.
    Grants = 13,
    /// workflow id → record of a workflow that has not ended, or is part of such a workflow. Read completely at start.
    Workflows = 14,
    /// workflow id → record of an ended workflow, until its retention ends.
    WorkflowsDone = 15,
    /// workflow id → workflow spec.
    WorkflowSpecs = 16,
    /// workflow id, task, item → record of a started task.
    Tasks = 17,
    /// workflow id, number → unconsumed signal.
    Signals = 18,
    /// schedule id → schedule.
    Schedules = 19,
    /// number → rejected message of a runner.
    RejectedMessages = 20,
    /// job id → nothing. Jobs that changed after their workflow ended; the workflow's record is not updated yet.
    LateUpdates = 21,
    /// digest → definition of workflows, as JSON.
    Definitions = 22,
    /// digest, workflow or schedule id → nothing. The users of a definition, and a marker before them.
    ByDefinition = 23,
}

impl Keyspace {
    pub const ALL: [Self; 23] = [
        Self::Live,
        Self::Done,
        Self::Spec,
        Self::ByQueue,
        Self::ByState,
        Self::Queues,
        Self::Keys,
        Self::Runners,
        Self::Meta,
        Self::DeadLetters,
        Self::Audit,
        Self::Scans,
        Self::Grants,
        Self::Workflows,
        Self::WorkflowsDone,
        Self::WorkflowSpecs,
        Self::Tasks,
        Self::Signals,
        Self::Schedules,
        Self::RejectedMessages,
        Self::LateUpdates,
        Self::Definitions,
        Self::ByDefinition,
    ];

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|keyspace| *keyspace as u8 == code)
    }

    /// Stable name, for files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Done => "done",
            Self::Spec => "spec",
            Self::ByQueue => "by_queue",
            Self::ByState => "by_state",
            Self::Queues => "queues",
            Self::Keys => "keys",
            Self::Runners => "runners",
            Self::Meta => "meta",
            Self::DeadLetters => "dead_letters",
            Self::Audit => "audit",
            Self::Scans => "scans",
            Self::Grants => "grants",
            Self::Workflows => "workflows",
            Self::WorkflowsDone => "workflows_done",
            Self::WorkflowSpecs => "workflow_specs",
            Self::Tasks => "tasks",
            Self::Signals => "signals",
            Self::Schedules => "schedules",
            // The name on disk, from before the messages were called rejected.
            Self::RejectedMessages => "parked",
            Self::LateUpdates => "late_updates",
            Self::Definitions => "definitions",
            Self::ByDefinition => "by_definition",
        }
    }
}

/// Maximum key length. Keys fit in fixed-size buffers.
pub const KEY_BYTES_MAX: usize = 32;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const EVENT: u8 = 3;

/// One entry of a batch, borrowed from its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    Put {
        keyspace: Keyspace,
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        keyspace: Keyspace,
        key: &'a [u8],
    },
    /// Event for subscribers. Stored in the journal only.
    Event {
        payload: &'a [u8],
    },
}

/// A batch under construction. Later writes of the same key win.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    ops: usize,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        self.put_with(keyspace, key, |buffer| buffer.extend_from_slice(value));
    }

    /// Like [`Batch::put`], but encodes the value directly into the buffer.
    pub fn put_with(&mut self, keyspace: Keyspace, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        self.head(PUT, keyspace as u8, key);
        self.sized(encode);
    }

    pub fn delete(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.head(DELETE, keyspace as u8, key);
    }

    pub fn event_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.ops += 1;
        self.bytes.push(EVENT);
        self.sized(encode);
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of writes and events.
    pub fn len(&self) -> usize {
        self.ops
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ops = 0;
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn head(&mut self, tag: u8, keyspace: u8, key: &[u8]) {
        assert!(key.len() <= KEY_BYTES_MAX, "the key is longer than {KEY_BYTES_MAX} bytes");
        self.ops += 1;
        self.bytes.extend_from_slice(&[tag, keyspace, key.len() as u8]);
        self.bytes.extend_from_slice(key);
    }

    /// Writes a length prefix and the output of `encode`. The length is filled in afterwards.
    fn sized(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        encode(&mut self.bytes);
        let len = u32::try_from(self.bytes.len() - at - 4)
            .expect("values are smaller than 4 GiB: specs and results have limits");
        self.bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }
}

/// Reads the entries of an encoded batch in order. Corrupt bytes end the iteration with an error, never a panic.
pub fn ops(bytes: &[u8]) -> Ops<'_> {
    Ops { rest: bytes }
}

/// Iterator of [`ops`].
#[derive(Debug, Clone)]
pub struct Ops<'a> {
    rest: &'a [u8],
}

impl<'a> Ops<'a> {
    /// The unread bytes. The length of the buffer minus theirs is the offset of the next entry.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    fn keyed(&mut self) -> Result<(Keyspace, &'a [u8]), DecodeError> {
        let code = self.byte()?;
        let keyspace =
            Keyspace::from_code(code).ok_or(DecodeError::Unknown { what: "keyspace", value: u64::from(code) })?;
        let len = usize::from(self.byte()?);
        if len > KEY_BYTES_MAX {
            return Err(DecodeError::Unknown { what: "key length", value: len as u64 });
        }
        Ok((keyspace, self.take(len)?))
    }

    fn value(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.take(4)?;
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]);
        self.take(len as usize)
    }

    fn op(&mut self) -> Result<Op<'a>, DecodeError> {
        match self.byte()? {
            PUT => {
                let (keyspace, key) = self.keyed()?;
                Ok(Op::Put { keyspace, key, value: self.value()? })
            }
            DELETE => {
                let (keyspace, key) = self.keyed()?;
                Ok(Op::Delete { keyspace, key })
            }
            EVENT => Ok(Op::Event { payload: self.value()? }),
            tag => Err(DecodeError::Unknown { what: "batch entry", value: u64::from(tag) }),
        }
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let op = self.op();
        if op.is_err() {
            self.rest = &[];
        }
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_read_in_the_order_of_its_writes() {
        let mut batch = Batch::new();
        batch.put(Keyspace::Live, b"a", b"one");
        batch.delete(Keyspace::Done, b"b");
        batch.event_with(|buffer| buffer.extend_from_slice(b"event"));
        let read: Vec<_> = ops(batch.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(
            read,
            vec![
                Op::Put { keyspace: Keyspace::Live, key: b"a", value: b"one" },
                Op::Delete { keyspace: Keyspace::Done, key: b"b" },
                Op::Event { payload: b"event" },
            ]
        );
        assert_eq!(batch.len(), 3);
    }

    proptest::proptest! {
        #[test]
        fn reading_any_bytes_does_not_panic(bytes: Vec<u8>) {
            let _ = ops(&bytes).count();
        }

        #[test]
        fn a_truncated_batch_yields_a_prefix_of_its_entries(cut in 0usize..60) {
            let mut batch = Batch::new();
            batch.put(Keyspace::Live, b"key", b"a value of some length");
            batch.put(Keyspace::Done, b"key", b"another");
            let whole: Vec<_> = ops(batch.as_bytes()).map(Result::unwrap).collect();
            let cut = cut.min(batch.as_bytes().len());
            let read: Vec<_> = ops(&batch.as_bytes()[..cut]).map_while(Result::ok).collect();
            proptest::prop_assert_eq!(&whole[..read.len()], &read[..]);
        }
    }
}
