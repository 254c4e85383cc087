//! Records with references to blobs.

use model::batch::Keyspace;
use model::blob::{BlobId, named_in};
use model::id::ShardId;
use shard::reads;
use store::Store;

use crate::error::Error;

/// Keyspaces whose records refer to blobs: jobs with their specs; definitions, inputs, task results and outputs of
/// workflows.
pub(super) const MARKED: [Keyspace; 9] = [
    Keyspace::Live,
    Keyspace::Done,
    Keyspace::Workflows,
    Keyspace::WorkflowsDone,
    Keyspace::WorkflowSpecs,
    Keyspace::Definitions,
    Keyspace::Tasks,
    Keyspace::Signals,
    Keyspace::Schedules,
];

/// The marked keyspaces whose record of the same key changes with a record of `keyspace`.
pub(super) fn changed_with(keyspace: Keyspace) -> &'static [Keyspace] {
    match keyspace {
        Keyspace::Live => &[Keyspace::Live],
        Keyspace::Done => &[Keyspace::Done],
        // A large spec is part of its job.
        Keyspace::Spec => &[Keyspace::Live, Keyspace::Done],
        Keyspace::Workflows => &[Keyspace::Workflows],
        Keyspace::WorkflowsDone => &[Keyspace::WorkflowsDone],
        Keyspace::WorkflowSpecs => &[Keyspace::WorkflowSpecs],
        Keyspace::Definitions => &[Keyspace::Definitions],
        Keyspace::Tasks => &[Keyspace::Tasks],
        Keyspace::Signals => &[Keyspace::Signals],
        Keyspace::Schedules => &[Keyspace::Schedules],
        Keyspace::ByQueue
        | Keyspace::ByState
        | Keyspace::Queues
        | Keyspace::Keys
        | Keyspace::Runners
        | Keyspace::Meta
        | Keyspace::DeadLetters
        | Keyspace::Audit
        | Keyspace::Scans
        | Keyspace::Grants
        | Keyspace::RejectedMessages
        | Keyspace::LateUpdates
        | Keyspace::ByDefinition => &[],
    }
}

/// The blobs that a record refers to. An unreadable record is an error: it may refer to any blob.
pub(super) fn blobs_of(
    store: &dyn Store,
    shard: ShardId,
    keyspace: Keyspace,
    value: &[u8],
) -> Result<Vec<BlobId>, Error> {
    match keyspace {
        Keyspace::Live | Keyspace::Done => match reads::complete(store, shard, reads::decode(shard, value)?)? {
            Some(job) => job.blobs().map_err(|source| Error::record(shard, source)),
            None => Ok(Vec::new()),
        },
        Keyspace::Workflows
        | Keyspace::WorkflowsDone
        | Keyspace::WorkflowSpecs
        | Keyspace::Definitions
        | Keyspace::Tasks
        | Keyspace::Signals
        | Keyspace::Schedules => Ok(named_in(value).collect()),
        // A spec is written with its job, and read with it.
        Keyspace::Spec
        | Keyspace::ByQueue
        | Keyspace::ByState
        | Keyspace::Queues
        | Keyspace::Keys
        | Keyspace::Runners
        | Keyspace::Meta
        | Keyspace::DeadLetters
        | Keyspace::Audit
        | Keyspace::Scans
        | Keyspace::Grants
        | Keyspace::RejectedMessages
        | Keyspace::LateUpdates
        | Keyspace::ByDefinition => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_record_changes_with_itself() {
        for keyspace in Keyspace::ALL {
            assert_eq!(changed_with(keyspace).contains(&keyspace), MARKED.contains(&keyspace), "{keyspace:?}");
        }
    }
}
