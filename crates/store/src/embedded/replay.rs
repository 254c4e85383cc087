//! Replay at start: journal entries after the position of the tables go through the pipeline like commits.

use std::path::Path;

use journal::Journal;

use super::pipeline::{Pipeline, checkpoint_of};
use crate::{Error, Position};

/// Submits the tail of the journal to the pipeline. Fails if tables and journal do not match; until that is checked,
/// nothing is written to the tables.
pub(crate) fn replay(journal: &Journal, pipeline: &Pipeline, applied: Position, directory: &Path) -> Result<(), Error> {
    let behind = |checkpoint| Error::TablesBehind { directory: directory.to_path_buf(), applied, checkpoint };
    let durable = journal.durable();
    if applied > durable {
        return Err(Error::JournalBehind { directory: directory.to_path_buf(), applied, durable });
    }
    let mut reader = journal.reader(applied.next()).map_err(|error| match error {
        // A segment expires only after a checkpoint beyond it.
        journal::Error::Expired { oldest } => behind(Position(oldest.0 - 1)),
        other => Error::Journal(other),
    })?;
    while let Some((position, entry)) = reader.next()? {
        if let Some(checkpoint) = checkpoint_of(&entry)
            && checkpoint > applied
        {
            return Err(behind(checkpoint));
        }
        pipeline.submit(position, entry);
    }
    Ok(())
}
