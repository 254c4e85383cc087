//! Records that are filed under the ids of jobs, of all shards together, oldest job first, page by page.

use bytes::Bytes;
use model::batch::Keyspace;
use model::id::{JobId, ShardId};
use model::view::Page;
use store::{Key, Order, Range, Store};

use super::Core;
use super::list::{Parameters, cursor, parse_cursor};
use super::problem::Refused;

/// How many records one request looks at; a page may be short for it, and says where to go on.
const LOOKED_AT_MAX: usize = 20_000;
const CHUNK: usize = 500;

/// A record, and where it is from.
pub(crate) struct Found {
    pub shard: ShardId,
    pub id: JobId,
    pub value: Bytes,
}

/// The records of one shard, read ahead a chunk at a time.
struct Strand {
    shard: ShardId,
    ahead: std::vec::IntoIter<(JobId, Bytes)>,
    head: Option<(JobId, Bytes)>,
    exhausted: bool,
}

/// Goes through one keyspace of all shards. Blocking: it reads the store.
pub(crate) struct Across<'a> {
    store: &'a dyn Store,
    keyspace: Keyspace,
    strands: Vec<Strand>,
}

impl<'a> Across<'a> {
    /// Begins after a job, or with the oldest.
    pub fn begin(core: &'a Core, keyspace: Keyspace, after: Option<JobId>) -> Result<Self, store::Error> {
        let mut across = Self { store: core.store.as_ref(), keyspace, strands: Vec::new() };
        for shard in core.shards.all() {
            let mut strand = Strand { shard, ahead: Vec::new().into_iter(), head: None, exhausted: false };
            across.advance(&mut strand, after)?;
            across.strands.push(strand);
        }
        Ok(across)
    }

    fn advance(&self, strand: &mut Strand, after: Option<JobId>) -> Result<(), store::Error> {
        strand.head = strand.ahead.next();
        if strand.head.is_some() || strand.exhausted {
            return Ok(());
        }
        let range = after.map_or_else(Range::all, |id| Range::all().after(&Key::new(&id.key())));
        let found = self.store.scan(strand.shard, self.keyspace, range, Order::Ascending, CHUNK)?;
        strand.exhausted = found.len() < CHUNK;
        let known = found.into_iter().filter_map(|(key, value)| Some((JobId::from_key(&key)?, value)));
        strand.ahead = known.collect::<Vec<_>>().into_iter();
        strand.head = strand.ahead.next();
        Ok(())
    }

    /// The oldest that was not given yet.
    pub fn next(&mut self) -> Result<Option<Found>, store::Error> {
        let ids = self.strands.iter().enumerate();
        let oldest = ids.filter_map(|(at, strand)| Some((strand.head.as_ref()?.0, at))).min();
        let Some((id, at)) = oldest else { return Ok(None) };
        let mut strand = self.strands.swap_remove(at);
        let taken = strand.head.take().map(|(_, value)| Found { shard: strand.shard, id, value });
        self.advance(&mut strand, Some(id))?;
        self.strands.push(strand);
        Ok(taken)
    }
}

/// One page of what `pick` makes of the records. Blocking: it reads the store.
pub(crate) fn page<T>(
    core: &Core,
    keyspace: Keyspace,
    parameters: &Parameters,
    mut pick: impl FnMut(Found) -> Result<Option<T>, Refused>,
) -> Result<Page<T>, Refused> {
    let limit = parameters.limit()?;
    let mut last = parameters.text("cursor").map(parse_cursor).transpose()?;
    let mut across = Across::begin(core, keyspace, last)?;
    let mut items = Vec::new();
    for _ in 0..LOOKED_AT_MAX {
        let Some(found) = across.next()? else { return Ok(Page { items, next_cursor: None }) };
        last = Some(found.id);
        items.extend(pick(found)?);
        if items.len() == limit {
            break;
        }
    }
    Ok(Page { items, next_cursor: last.map(cursor) })
}
