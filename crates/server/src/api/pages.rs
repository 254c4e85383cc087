//! Pages of records, and their cursors.

use ::api::Page;
use bytes::Bytes;
use model::id::ShardId;
use shard::reads::merge::{READ_MAX, RecordId, Records};

use super::Core;
use super::parameters::Parameters;
use super::problem::Refused;

/// A page of records of all shards, in the order of `records`. Blocks on the store.
pub(crate) fn page<I: RecordId, T>(
    core: &Core,
    records: Records<'_, I>,
    parameters: &Parameters,
    cursor: CursorForm,
    mut pick: impl FnMut(ShardId, I, &Bytes) -> Result<Option<T>, Refused>,
) -> Result<Page<T>, Refused> {
    let mut reader = records.merge(core.shards, cursor.read(parameters)?);
    let (items, next) = reader.take(parameters.limit()?, READ_MAX, |shard, (id, value)| pick(shard, id, &value))?;
    Ok(Page { items, next_cursor: next.map(|id| cursor.text(id)) })
}

/// Text form of cursors that are ids. Cursors are opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorForm {
    /// `c` and the id without its prefix.
    Short,
    /// The id itself.
    Id,
}

impl CursorForm {
    /// The cursor of a request.
    pub fn read<I: RecordId>(self, parameters: &Parameters) -> Result<Option<I>, Refused> {
        parameters.text("cursor").map(|text| self.parse(text)).transpose()
    }

    pub fn text<I: RecordId>(self, id: I) -> String {
        match self {
            Self::Short => format!("c{}", &id.to_string()[I::PREFIX.len()..]),
            Self::Id => id.to_string(),
        }
    }

    fn parse<I: RecordId>(self, text: &str) -> Result<I, Refused> {
        let id = match self {
            Self::Short => text.strip_prefix('c').and_then(|rest| format!("{}{rest}", I::PREFIX).parse().ok()),
            Self::Id => text.parse().ok(),
        };
        id.ok_or_else(|| Refused::cursor(text))
    }
}

#[cfg(test)]
mod tests {
    use model::id::{JobId, QueueId, WorkflowId};

    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        for form in [CursorForm::Short, CursorForm::Id] {
            assert_eq!(form.parse::<JobId>(&form.text(JobId(77))).unwrap(), JobId(77));
            assert!(form.parse::<JobId>("x").is_err());
        }
        assert!(CursorForm::Id.parse::<JobId>(&CursorForm::Id.text(QueueId(7))).is_err());
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_as_a_cursor_does_not_panic(text in ".{0,30}") {
            let _ = CursorForm::Short.parse::<WorkflowId>(&text);
        }
    }
}
