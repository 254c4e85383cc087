//! Pages of the audit log: the entries of all shards by time, oldest or newest first.

use ::api::{AuditEntryView, Page};
use model::audit::{self, Action, AuditEntry, Link};
use model::batch::Keyspace;
use model::id::{JobId, ShardId};
use model::key;
use shard::reads::merge::{CHUNK, Chunk, MergeReader, Source, rank};
use store::{Key, Order, Range, Store};

use super::super::Core;
use super::super::parameters::Parameters;
use super::super::problem::Refused;

/// Entries read for one page. A page may be short because of it; its cursor continues there.
const ENTRIES_READ_MAX: usize = 50_000;

struct Filter {
    job: Option<JobId>,
    action: Option<Action>,
}

impl Filter {
    fn from(parameters: &Parameters) -> Result<Self, Refused> {
        let action = match parameters.text("action") {
            None => None,
            Some(text) => Some(Action::ALL.into_iter().find(|action| action.as_str() == text).ok_or_else(|| {
                let known: Vec<&str> = Action::ALL.iter().map(|action| action.as_str()).collect();
                Refused::parameter("action", format!("`{text}` is not one of {}", known.join(", ")))
            })?),
        };
        Ok(Self { job: parameters.job()?, action })
    }

    fn accepts(&self, entry: &AuditEntry) -> bool {
        self.job.is_none_or(|job| entry.job == Some(job)) && self.action.is_none_or(|action| entry.action == action)
    }
}

/// Entries of the audit log by time.
struct Entries<'a> {
    store: &'a dyn Store,
    order: Order,
}

impl Source for Entries<'_> {
    type Item = (Link, AuditEntry);
    /// Number of the entry in its shard.
    type Position = u64;

    fn read(&self, shard: ShardId, after: Option<u64>) -> Result<Chunk<(Link, AuditEntry)>, shard::Error> {
        let range = match (after.map(|number| Key::new(&key::audit(number))), self.order) {
            (None, _) => Range::all(),
            (Some(bound), Order::Ascending) => Range::all().after(&bound),
            (Some(bound), Order::Descending) => Range::all().before(&bound),
        };
        let found = self.store.scan(shard, Keyspace::Audit, range, self.order, CHUNK)?;
        let entries = found.iter().map(|(_, stored)| audit::decode(stored));
        let items: Result<Vec<_>, _> = entries.collect();
        let items = items.map_err(|source| shard::Error::record(shard, source))?;
        Ok(Chunk { is_last: items.len() < CHUNK, items })
    }

    fn rank(&self, (_, entry): &(Link, AuditEntry)) -> u64 {
        rank(self.order, entry.at.0)
    }

    fn position(&self, (_, entry): &(Link, AuditEntry)) -> u64 {
        entry.number
    }
}

/// A page. Blocks on the store.
pub(super) fn page(core: &Core, parameters: &Parameters) -> Result<Page<AuditEntryView>, Refused> {
    let filter = Filter::from(parameters)?;
    let order = if parameters.flag("newest_first")? { Order::Descending } else { Order::Ascending };
    let entries = Entries { store: core.store(), order };
    let mut reader = MergeReader::new(entries, start(core, parameters, &filter)?);
    let (items, next) = reader.take(parameters.limit()?, ENTRIES_READ_MAX, |shard, (link, entry)| {
        Ok::<_, Refused>(filter.accepts(&entry).then(|| AuditEntryView::new(shard, link, entry)))
    })?;
    Ok(Page { items, next_cursor: next.map(|_| cursor(reader.positions())) })
}

/// The shards to read, with the positions to continue after.
fn start(core: &Core, parameters: &Parameters, filter: &Filter) -> Result<Vec<(ShardId, Option<u64>)>, Refused> {
    let count = core.shards.count();
    let only = match parameters.number("shard", u64::from(count - 1))? {
        Some(number) => Some(ShardId(number as u16)),
        // Changes of a job are logged in its shard.
        None => filter.job.map(|job| core.shard_of(job.slot())),
    };
    let shards: Vec<ShardId> = core.shards.all().filter(|shard| only.is_none_or(|only| only == *shard)).collect();
    let after = parameters.number("after", u64::MAX)?;
    match (parameters.text("cursor"), after) {
        // The cursor is beyond `after`.
        (Some(text), _) => Ok(shards.iter().copied().zip(parse_cursor(text, shards.len())?).collect()),
        (None, None) => Ok(shards.into_iter().map(|shard| (shard, None)).collect()),
        (None, Some(_)) if shards.len() > 1 => {
            Err(Refused::parameter("after", "entries are numbered per shard: give the `shard`"))
        }
        (None, Some(number)) => Ok(shards.into_iter().map(|shard| (shard, Some(number))).collect()),
    }
}

/// Cursors are opaque to clients: the position in each shard.
fn cursor(positions: impl Iterator<Item = Option<u64>>) -> String {
    let positions = positions.map(|at| at.map_or_else(|| "-".to_owned(), |number| number.to_string()));
    format!("a{}", positions.collect::<Vec<_>>().join("."))
}

fn parse_cursor(text: &str, shards: usize) -> Result<Vec<Option<u64>>, Refused> {
    let wrong = || Refused::cursor(text);
    let places = text.strip_prefix('a').ok_or_else(wrong)?.split('.');
    let places: Result<Vec<Option<u64>>, Refused> = places
        .map(|place| if place == "-" { Ok(None) } else { place.parse().map(Some).map_err(|_| wrong()) })
        .collect();
    places.and_then(|places| if places.len() == shards { Ok(places) } else { Err(wrong()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_fits_its_shards_only() {
        let text = cursor([Some(7), None].into_iter());
        assert_eq!(parse_cursor(&text, 2).unwrap(), [Some(7), None]);
        for (text, shards) in [(text.as_str(), 3), ("", 1), ("a", 1), ("ax", 1), ("7", 1), ("a-5", 1)] {
            assert!(parse_cursor(text, shards).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_as_a_cursor_does_not_panic(text in ".{0,40}") {
            let _ = parse_cursor(&text, 2);
        }
    }
}
