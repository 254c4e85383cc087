//! Index of names: queues by token, schedules by name. Readers find a record in it without reading all records. The
//! shard itself has both in memory.

use model::batch::{Batch, Keyspace};
use model::id::ScheduleId;
use model::key;
use model::queue::Queue;

/// Adds a queue that clients refer to by its token.
pub(crate) fn add_queue(queue: &Queue, batch: &mut Batch) {
    if let Some(token) = queue.token {
        batch.put(Keyspace::Meta, &key::queue_token(token), &queue.id.key());
    }
}

pub(crate) fn remove_queue(queue: &Queue, batch: &mut Batch) {
    if let Some(token) = queue.token {
        batch.delete(Keyspace::Meta, &key::queue_token(token));
    }
}

pub(crate) fn add_schedule(name: &str, id: ScheduleId, batch: &mut Batch) {
    batch.put(Keyspace::Meta, &key::schedule_name(name, id), &[]);
}

pub(crate) fn remove_schedule(name: &str, id: ScheduleId, batch: &mut Batch) {
    batch.delete(Keyspace::Meta, &key::schedule_name(name, id));
}
