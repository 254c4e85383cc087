//! Partition of a shard's records by slot. A shard can be split because every record belongs to one slot, or to the shard
//! as a whole: ids end in their slot, and everything else is kept under an id.

use crate::batch::Keyspace;
use crate::codec;
use crate::id::{JobId, QueueId, ScheduleId, Slot, WorkflowId};
use crate::key::{self, CreatedObject, DEFINITION_MARKER, KeyEntry};
use crate::spec::KeyHash;

/// Where a record goes when its shard is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    /// To the owner of this slot.
    Slot(Slot),
    /// It is about the shard itself, or shared by its slots: each part decides about it.
    Shard,
}

/// The partition of a record. `None`: the record is malformed.
pub fn partition_of(keyspace: Keyspace, key: &[u8], value: &[u8]) -> Option<Partition> {
    let slot = match keyspace {
        Keyspace::Live
        | Keyspace::Done
        | Keyspace::Spec
        | Keyspace::DeadLetters
        | Keyspace::Scans
        | Keyspace::LateUpdates => JobId::from_key(key)?.slot(),
        Keyspace::ByQueue => key::job_of_by_queue(key)?.slot(),
        Keyspace::ByState => key::job_of_by_state(key)?.slot(),
        Keyspace::Queues => QueueId::from_key(key)?.slot(),
        Keyspace::Workflows | Keyspace::WorkflowsDone | Keyspace::WorkflowSpecs => WorkflowId::from_key(key)?.slot(),
        Keyspace::Tasks => key::key_of_task(key)?.0.slot(),
        Keyspace::Signals => key::number_of_signal(key)?.0.slot(),
        Keyspace::Schedules => ScheduleId::from_key(key)?.slot(),
        Keyspace::Keys => match codec::decode::<KeyEntry>(value).ok()?.made {
            CreatedObject::Job { id, .. } => id.slot(),
            CreatedObject::Queue { id } => id.slot(),
            CreatedObject::Workflow { id } => id.slot(),
            CreatedObject::Schedule { id } => id.slot(),
            // Recorded at the key's home.
            CreatedObject::Claimed { .. } => KeyHash(key.get(2..)?.try_into().ok()?).slot(),
        },
        Keyspace::ByDefinition => match key::user_of_definition(key)? {
            (_, DEFINITION_MARKER) => return Some(Partition::Shard),
            (_, user) => WorkflowId(user).slot(),
        },
        Keyspace::Runners
        | Keyspace::Meta
        | Keyspace::Audit
        | Keyspace::Grants
        | Keyspace::RejectedMessages
        | Keyspace::Definitions => return Some(Partition::Shard),
    };
    Some(Partition::Slot(slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SLOTS;
    use crate::spec::Digest;
    use crate::state::State;
    use crate::time::Millis;
    use crate::workflow::TaskKey;

    #[test]
    fn records_of_an_object_share_its_slot() {
        for number in [0, 7, u64::from(SLOTS) - 1] {
            let (id, slot) = ((12_345 << 10) | number, Slot::of(number));
            let (job, queue, workflow) = (JobId(id), QueueId(id), WorkflowId(id));
            let made = CreatedObject::Job { id: job, seq: 1 };
            let entry = codec::encode(&KeyEntry { digest: Digest([1; 16]), at: Millis(0), made });
            let records: [(Keyspace, Vec<u8>, &[u8]); 8] = [
                (Keyspace::Live, job.key().to_vec(), &[]),
                (Keyspace::ByQueue, key::by_queue(queue, job).to_vec(), &[]),
                (Keyspace::ByState, key::by_state(State::Failed, job).to_vec(), &[]),
                (Keyspace::Queues, queue.key().to_vec(), &[]),
                (Keyspace::Tasks, key::task(workflow, TaskKey::of(3)).to_vec(), &[]),
                (Keyspace::Signals, key::signal(workflow, 3).to_vec(), &[]),
                (Keyspace::ByDefinition, key::by_definition(Digest([9; 16]), id).to_vec(), &[]),
                (Keyspace::Keys, key::idempotency(key::Day(1), KeyHash([5; 16])).to_vec(), &entry),
            ];
            for (keyspace, key, value) in records {
                assert_eq!(partition_of(keyspace, &key, value), Some(Partition::Slot(slot)), "{keyspace:?}");
            }
        }
        assert_eq!(partition_of(Keyspace::Runners, &[1; 8], &[]), Some(Partition::Shard));
    }

    proptest::proptest! {
        #[test]
        fn any_record_has_a_partition_or_is_malformed(code in 0u8..40, key: Vec<u8>, value: Vec<u8>) {
            if let Some(keyspace) = Keyspace::from_code(code) {
                let _ = partition_of(keyspace, &key, &value);
            }
        }
    }
}
