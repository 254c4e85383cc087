//! Pages of the log: the entries of all shards by their time, oldest or newest first.

use bytes::Bytes;
use model::audit::{self, Action, Entry, Link};
use model::batch::Keyspace;
use model::id::{JobId, ShardId};
use model::key;
use model::view::{AuditEntryView, Page};
use store::{Key, Order, Range, Store};

use super::super::Core;
use super::super::list::{Parameters, bad};
use super::super::problem::{Fault, Refused};
use crate::error::Error;

/// How many entries one request looks at; a page may be short for it, and says where to go on.
const LOOKED_AT_MAX: usize = 50_000;
const CHUNK: usize = 500;

/// Which entries are wanted.
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
                bad("action", format!("`{text}` is none of {}", known.join(", ")))
            })?),
        };
        Ok(Self { job: parameters.job()?, action })
    }

    fn wants(&self, entry: &Entry) -> bool {
        self.job.is_none_or(|job| entry.job == Some(job)) && self.action.is_none_or(|action| entry.action == action)
    }
}

/// The entries of one shard, read ahead a chunk at a time.
struct Strand {
    shard: ShardId,
    /// The number of the last entry that was given.
    at: Option<u64>,
    ahead: std::vec::IntoIter<Bytes>,
    head: Option<(Link, Entry)>,
    exhausted: bool,
}

impl Strand {
    fn new(shard: ShardId, at: Option<u64>) -> Self {
        Self { shard, at, ahead: Vec::new().into_iter(), head: None, exhausted: false }
    }

    /// Looks at the next one.
    fn peek(&mut self, core: &Core, order: Order) -> Result<Option<&(Link, Entry)>, Refused> {
        if self.head.is_none() {
            if self.ahead.len() == 0 && !self.exhausted {
                self.read(core, order)?;
            }
            self.head = match self.ahead.next() {
                Some(stored) => {
                    let shard = self.shard.0;
                    Some(audit::decode(&stored).map_err(|source| Error::Record { shard, source })?)
                }
                None => None,
            };
        }
        Ok(self.head.as_ref())
    }

    fn read(&mut self, core: &Core, order: Order) -> Result<(), Refused> {
        let bound = self.at.map(|number| Key::new(&key::audit(number)));
        let range = match (bound, order) {
            (None, _) => Range::all(),
            (Some(bound), Order::Ascending) => Range::all().after(&bound),
            (Some(bound), Order::Descending) => Range::all().before(&bound),
        };
        let found = core.store.scan(self.shard, Keyspace::Audit, range, order, CHUNK)?;
        self.exhausted = found.len() < CHUNK;
        self.ahead = found.into_iter().map(|(_, stored)| stored).collect::<Vec<_>>().into_iter();
        Ok(())
    }

    fn take(&mut self) -> Option<(Link, Entry)> {
        let taken = self.head.take();
        if let Some((_, entry)) = &taken {
            self.at = Some(entry.number);
        }
        taken
    }
}

/// One page. Blocking: it reads the store.
pub(super) fn page(core: &Core, parameters: &Parameters) -> Result<Page<AuditEntryView>, Refused> {
    let limit = parameters.limit()?;
    let filter = Filter::from(parameters)?;
    let order = if parameters.flag("newest_first")? { Order::Descending } else { Order::Ascending };
    let mut strands = strands(core, parameters, &filter)?;
    let mut items = Vec::new();
    for _ in 0..LOOKED_AT_MAX {
        let Some(index) = next(core, &mut strands, order)? else { return Ok(Page { items, next_cursor: None }) };
        let shard = strands[index].shard;
        if let Some((link, entry)) = strands[index].take()
            && filter.wants(&entry)
        {
            items.push(AuditEntryView::new(shard, link, entry));
        }
        if items.len() == limit {
            break;
        }
    }
    Ok(Page { items, next_cursor: Some(cursor(&strands)) })
}

/// The shards that have what is wanted, each from where it is to go on.
fn strands(core: &Core, parameters: &Parameters, filter: &Filter) -> Result<Vec<Strand>, Refused> {
    let count = core.shards.count();
    let only = match parameters.number("shard", u64::from(count - 1))? {
        Some(number) => Some(ShardId(number as u16)),
        // What is done to a job is noted where the job is.
        None => filter.job.map(|job| core.shard_of(job.slot())),
    };
    let shards: Vec<ShardId> = core.shards.all().filter(|shard| only.is_none_or(|only| only == *shard)).collect();
    let after = parameters.number("after", u64::MAX)?;
    match (parameters.text("cursor"), after) {
        // It is further on than where the first page began.
        (Some(text), _) => {
            let places = parse_cursor(text, shards.len())?;
            Ok(shards.into_iter().zip(places).map(|(shard, at)| Strand::new(shard, at)).collect())
        }
        (None, None) => Ok(shards.into_iter().map(|shard| Strand::new(shard, None)).collect()),
        (None, Some(_)) if shards.len() > 1 => {
            Err(bad("after", "every shard counts for itself: say which `shard` is meant".to_owned()))
        }
        (None, Some(number)) => Ok(shards.into_iter().map(|shard| Strand::new(shard, Some(number))).collect()),
    }
}

/// The strand with the oldest entry, or the newest; of equals the first.
fn next(core: &Core, strands: &mut [Strand], order: Order) -> Result<Option<usize>, Refused> {
    let mut best = None;
    for (index, strand) in strands.iter_mut().enumerate() {
        let Some((_, entry)) = strand.peek(core, order)? else { continue };
        let comes_before = best.is_none_or(|(_, at)| match order {
            Order::Ascending => entry.at < at,
            Order::Descending => entry.at > at,
        });
        if comes_before {
            best = Some((index, entry.at));
        }
    }
    Ok(best.map(|(index, _)| index))
}

/// Opaque to clients: how far each shard was read.
fn cursor(strands: &[Strand]) -> String {
    let places = strands.iter().map(|strand| strand.at.map_or_else(|| "-".to_owned(), |number| number.to_string()));
    format!("a{}", places.collect::<Vec<_>>().join("."))
}

fn parse_cursor(text: &str, shards: usize) -> Result<Vec<Option<u64>>, Refused> {
    let wrong = || {
        let detail = format!("`{text}` is not a cursor of this list");
        Refused::saying(Fault::InvalidCursor, detail).at("cursor")
    };
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
        let strands = [Strand::new(ShardId(0), Some(7)), Strand::new(ShardId(1), None)];
        let text = cursor(&strands);
        assert_eq!(parse_cursor(&text, 2).unwrap(), [Some(7), None]);
        for (text, shards) in [(text.as_str(), 3), ("", 1), ("a", 1), ("ax", 1), ("7", 1), ("a-5", 1)] {
            assert!(parse_cursor(text, shards).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_as_a_cursor_ends_without_a_panic(text in ".{0,40}") {
            let _ = parse_cursor(&text, 2);
        }
    }
}
