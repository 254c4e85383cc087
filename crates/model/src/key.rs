//! Keys of records within their keyspaces. All keys are built here.

use minicbor::{Decode, Encode};

use crate::id::{JobId, QueueId, RunnerId, ScheduleId, ShardId, WorkflowId};
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

/// Key of the largest id that the shard issued for a record deleted since.
pub const META_LAST_ID: &[u8] = b"last_id";

/// Key of the head of the shard's audit chain.
pub const META_AUDIT: &[u8] = b"audit";

/// Key of an audit entry.
pub fn audit(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}
