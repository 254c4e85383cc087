//! Reads the events of commits from the journal.

use bytes::Bytes;
use journal::{Journal, Reader};
use model::batch::{Op, ops};

use super::entry::{JournalEntry, decode};
use crate::{Committed, Cursor, Error, EventReader, Position, StoreId};

struct JournalEvents {
    store: StoreId,
    reader: Reader,
    /// The last entry read. All shards share the journal, so that one position is the cursor of all.
    last: Position,
}

pub(crate) fn read(journal: &Journal, store: StoreId, after: &Cursor) -> Result<Box<dyn EventReader>, Error> {
    // A position beyond the end is of other data: waiting for it would skip events.
    let last = match after.positions() {
        [last] if after.store() == store && *last <= journal.durable() => *last,
        _ => return Err(Error::ForeignCursor),
    };
    let reader = journal.reader(last.next()).map_err(expired)?;
    Ok(Box::new(JournalEvents { store, reader, last }))
}

/// The position before the oldest entry that is kept.
pub(crate) fn before_oldest(journal: &Journal) -> Result<Position, Error> {
    match journal.reader(Position::NONE.next()) {
        Ok(_) => Ok(Position::NONE),
        Err(journal::Error::Expired { oldest }) => Ok(Position(oldest.0.saturating_sub(1))),
        Err(error) => Err(error.into()),
    }
}

impl EventReader for JournalEvents {
    fn next(&mut self) -> Result<Option<Committed>, Error> {
        while let Some((position, entry)) = self.reader.next().map_err(expired)? {
            self.last = position;
            let unreadable = |reason: String| Error::Tables {
                reason: format!("the journal entry {position} cannot be decoded: {reason}"),
            };
            match decode(&entry).map_err(|reason| unreadable(reason.to_owned()))? {
                JournalEntry::Commit { shard, batch } => {
                    let events = events_of(&batch).map_err(unreadable)?;
                    return Ok(Some(Committed { shard, position, events, batch }));
                }
                JournalEntry::OpenShard { .. } | JournalEntry::Document { .. } | JournalEntry::Checkpoint { .. } => {}
            }
        }
        Ok(None)
    }

    fn cursor(&self) -> Cursor {
        Cursor::new(self.store, vec![self.last])
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
        journal::Error::Expired { .. } => Error::CursorExpired,
        other => Error::Journal(other),
    }
}
