//! Keys of records within their keyspaces. All keys are built here.

use minicbor::{Decode, Encode};

use crate::id::{JobId, QueueId, RunnerId, ScheduleId, ShardId, WorkflowId};
use crate::queue::QueueToken;
use crate::spec::{Digest, KeyHash};
use crate::state::State;
use crate::time::Millis;
use crate::workflow::TaskKey;

const DAY: u64 = 24 * 3600 * 1000;

pub fn by_queue(queue: QueueId, job: JobId) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&queue.key());
    key[8..].copy_from_slice(&job.key());
    key
}

/// Takes the place of a user in [`by_definition`]: the definition is stored. No id is 0.
pub const DEFINITION_MARKER: u64 = 0;

/// `user`: id of the workflow or schedule.
pub fn by_definition(digest: Digest, user: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&digest.0);
    key[16..].copy_from_slice(&user.to_be_bytes());
    key
}

/// Parses a [`by_definition`] key.
pub fn user_of_definition(key: &[u8]) -> Option<(Digest, u64)> {
    let (digest, user) = key.split_at_checked(16)?;
    Some((Digest(digest.try_into().ok()?), u64::from_be_bytes(user.try_into().ok()?)))
}

/// A task sorts before its items.
pub fn task(workflow: WorkflowId, task_key: TaskKey) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&workflow.key());
    key[8..12].copy_from_slice(&task_key.task.to_be_bytes());
    let item = task_key.item.map_or(0, |item| item + 1);
    key[12..].copy_from_slice(&item.to_be_bytes());
    key
}

/// Parses a [`task`] key.
pub fn key_of_task(key: &[u8]) -> Option<(WorkflowId, TaskKey)> {
    let (workflow, rest) = key.split_at_checked(8)?;
    let (task, item) = rest.split_at_checked(4)?;
    let task = u32::from_be_bytes(task.try_into().ok()?);
    let item = u32::from_be_bytes(item.try_into().ok()?).checked_sub(1);
    Some((WorkflowId::from_key(workflow)?, TaskKey { task, item }))
}

pub fn signal(workflow: WorkflowId, number: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&workflow.key());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Parses a [`signal`] key.
pub fn number_of_signal(key: &[u8]) -> Option<(WorkflowId, u32)> {
    let (workflow, number) = key.split_at_checked(8)?;
    Some((WorkflowId::from_key(workflow)?, u32::from_be_bytes(number.try_into().ok()?)))
}

/// The job at the end of a [`by_queue`] key.
pub fn job_of_by_queue(key: &[u8]) -> Option<JobId> {
    JobId::from_key(key.get(8..)?)
}

pub fn by_state(state: State, job: JobId) -> [u8; 9] {
    let mut key = [0; 9];
    key[0] = state.code();
    key[1..].copy_from_slice(&job.key());
    key
}

/// The job at the end of a [`by_state`] key.
pub fn job_of_by_state(key: &[u8]) -> Option<JobId> {
    JobId::from_key(key.get(1..)?)
}

/// The prefix is the day of first use: expiry deletes whole days.
pub fn idempotency(day: Day, key: KeyHash) -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..2].copy_from_slice(&day.0.to_be_bytes());
    bytes[2..].copy_from_slice(&key.0);
    bytes
}

/// Days since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub u16);

impl Day {
    pub fn of(time: Millis) -> Self {
        Self((time.0 / DAY).min(u64::from(u16::MAX)) as u16)
    }

    /// Its first moment.
    pub fn start(self) -> Millis {
        Millis(u64::from(self.0) * DAY)
    }

    /// The day of an idempotency key's record.
    pub fn of_key(key: &[u8]) -> Option<Self> {
        Some(Self(u16::from_be_bytes(key.get(..2)?.try_into().ok()?)))
    }

    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// Record of a used idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct KeyEntry {
    #[n(0)]
    pub digest: Digest,
    #[n(1)]
    pub at: Millis,
    #[n(2)]
    pub made: CreatedObject,
}

/// The object created under an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum CreatedObject {
    #[n(0)]
    Job {
        #[n(0)]
        id: JobId,
        #[n(1)]
        seq: u64,
    },
    #[n(1)]
    Queue {
        #[n(0)]
        id: QueueId,
    },
    #[n(2)]
    Workflow {
        #[n(0)]
        id: WorkflowId,
    },
    #[n(3)]
    Schedule {
        #[n(0)]
        id: ScheduleId,
    },
    /// Nothing here: the key belongs to a request to another shard.
    #[n(4)]
    Claimed {
        #[n(0)]
        shard: ShardId,
    },
}

pub fn runner(id: RunnerId) -> [u8; 8] {
    id.key()
}

/// Set once all queue tokens and schedule names are indexed: earlier versions had no such index.
pub const META_NAMES_INDEXED: &[u8] = b"names_indexed";

/// First bytes of the index of names. Other keys of the metadata begin with a letter.
const TOKEN_PREFIX: u8 = 1;
const SCHEDULE_PREFIX: u8 = 2;

/// Index of queue tokens. The value is the queue's id.
pub fn queue_token(token: QueueToken) -> [u8; 17] {
    let mut key = [TOKEN_PREFIX; 17];
    key[1..].copy_from_slice(&token.secret());
    key
}

/// Prefix of the index of a schedule's name. Tenants may have schedules of the same name.
pub fn schedules_named(name: &str) -> [u8; 17] {
    let mut key = [SCHEDULE_PREFIX; 17];
    key[1..].copy_from_slice(&Digest::of(name.as_bytes()).0);
    key
}

/// Index of schedule names.
pub fn schedule_name(name: &str, id: ScheduleId) -> [u8; 25] {
    let mut key = [0; 25];
    key[..17].copy_from_slice(&schedules_named(name));
    key[17..].copy_from_slice(&id.key());
    key
}

/// The schedule at the end of a [`schedule_name`] key.
pub fn schedule_of_name(key: &[u8]) -> Option<ScheduleId> {
    ScheduleId::from_key(key.get(17..)?)
}

/// Key of the largest id that the shard issued for a record deleted since.
pub const META_LAST_ID: &[u8] = b"last_id";

/// Key of the head of the shard's audit chain.
pub const META_AUDIT: &[u8] = b"audit";

/// Key of the signed checkpoint at the beginning of the shard's audit chain. Absent: no entry was removed.
pub const META_AUDIT_START: &[u8] = b"audit_start";

/// Key of an audit entry.
pub fn audit(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Parses an [`audit`] key.
pub fn number_of_audit(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}
