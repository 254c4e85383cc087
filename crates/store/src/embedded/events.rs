//! Reads the events of commits from the journal.

use bytes::Bytes;
use journal::{Journal, Reader};
use model::batch::{Op, ops};

use super::entry::{JournalEntry, decode};
use crate::{Committed, Error, EventReader, Position};

struct JournalEvents {
    reader: Reader,
}

pub(crate) fn read(journal: &Journal, after: Position) -> Result<Box<dyn EventReader>, Error> {
    let reader = journal.reader(after.next()).map_err(expired)?;
    Ok(Box::new(JournalEvents { reader }))
}

impl EventReader for JournalEvents {
    fn next(&mut self) -> Result<Option<Committed>, Error> {
        while let Some((position, entry)) = self.reader.next().map_err(expired)? {
            let unreadable = |reason: String| Error::Tables {
                reason: format!("the journal entry {position} cannot be decoded: {reason}"),
            };
            match decode(&entry).map_err(|reason| unreadable(reason.to_owned()))? {
                JournalEntry::Commit { shard, batch } => {
                    let events = events_of(&batch).map_err(unreadable)?;
                    return Ok(Some(Committed { position, shard, events }));
                }
                JournalEntry::OpenShard { .. } | JournalEntry::Checkpoint { .. } => {}
            }
        }
        Ok(None)
    }
}

fn events_of(batch: &Bytes) -> Result<Vec<Bytes>, String> {
    let mut events = Vec::new();
    for op in ops(batch) {
        match op.map_err(|error| error.to_string())? {
            Op::Event { payload } => events.push(batch.slice_ref(payload)),
            Op::Put { .. } | Op::Delete { .. } => {}
        }
    }
    Ok(events)
}

fn expired(error: journal::Error) -> Error {
    match error {
        journal::Error::Expired { oldest } => Error::CursorExpired { oldest },
        other => Error::Journal(other),
    }
}
