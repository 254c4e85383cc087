//! The keys of records within their keyspaces. Every one is built here and nowhere else.

use minicbor::{Decode, Encode};

use crate::id::{JobId, QueueId, RunnerId, ScheduleId, WorkflowId};
use crate::spec::{Digest, KeyHash};
use crate::state::State;
use crate::time::Millis;
use crate::workflow::Place;

const DAY: u64 = 24 * 3600 * 1000;

pub fn by_queue(queue: QueueId, job: JobId) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&queue.key());
    key[8..].copy_from_slice(&job.key());
    key
}

/// A task sorts before its items.
pub fn task(workflow: WorkflowId, place: Place) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&workflow.key());
    key[8..12].copy_from_slice(&place.task.to_be_bytes());
    let item = place.item.map_or(0, |item| item + 1);
    key[12..].copy_from_slice(&item.to_be_bytes());
    key
}

/// What a [`task`] key names.
pub fn place_of_task(key: &[u8]) -> Option<(WorkflowId, Place)> {
    let (workflow, rest) = key.split_at_checked(8)?;
    let (task, item) = rest.split_at_checked(4)?;
    let task = u32::from_be_bytes(task.try_into().ok()?);
    let item = u32::from_be_bytes(item.try_into().ok()?).checked_sub(1);
    Some((WorkflowId::from_key(workflow)?, Place { task, item }))
}

pub fn signal(workflow: WorkflowId, number: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&workflow.key());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// What a [`signal`] key names.
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

/// Idempotency keys are filed by the day they were first seen, so that whole days can be forgotten.
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

/// What an idempotency key has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct KeyEntry {
    #[n(0)]
    pub digest: Digest,
    #[n(1)]
    pub at: Millis,
    #[n(2)]
    pub made: Made,
}

/// What was made under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Made {
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
}

pub fn runner(id: RunnerId) -> [u8; 8] {
    id.key()
}

/// Where a shard keeps the largest id it has handed out for records that are gone by now.
pub const META_LAST_ID: &[u8] = b"last_id";

/// Where a shard keeps the head of its audit chain.
pub const META_AUDIT: &[u8] = b"audit";

/// The key of an audit entry.
pub fn audit(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}
