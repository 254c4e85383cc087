//! Lists of jobs, read page by page.

use std::collections::BTreeSet;

use model::id::{JobId, Shards};
use model::job::Job;
use model::spec::decode_owner;
use model::state::State;
use shard::reads::jobs::{Filter, Page, Reader};

use super::history::{History, PastStore};
use super::{Readers, interleaving};
use crate::coverage::Coverage;
use crate::invariants::{self, Checked};
use crate::rng::Rng;
use crate::world::{Event, World};

/// A list that a client is reading.
#[derive(Debug)]
pub struct Listing {
    filter: Filter,
    limit: usize,
    chunk_max: usize,
    read_max: usize,
    /// Number of commits before the first request.
    began: u64,
    /// Number of commits before the request of the current page.
    since: u64,
    before: Option<JobId>,
    ids: BTreeSet<JobId>,
}

/// Whether a job belongs to a list. Not the code of the API.
fn matches(filter: &Filter, job: &Job) -> bool {
    let Filter { states, queue, topic, tenant } = filter;
    let (its_topic, its_tenant) = decode_owner(&job.spec).unwrap_or_default();
    states.as_ref().is_none_or(|states| states.contains(&job.state))
        && queue.is_none_or(|queue| queue == job.queue)
        && topic.as_ref().is_none_or(|topic| *topic == its_topic)
        && tenant.as_ref().is_none_or(|tenant| *tenant == its_tenant)
}

/// Small numbers often, so that pages and chunks have many borders.
fn some_limit(rng: &mut Rng, max: u64) -> usize {
    let max = if rng.one_in(2) { 8 } else { max };
    rng.between(1, max) as usize
}

fn some_filter(rng: &mut Rng, example: Option<&Job>) -> Filter {
    let mut filter = Filter::default();
    match rng.below(4) {
        0 => {}
        1 | 2 => {
            // Few states, or most of them.
            let few = rng.one_in(2);
            filter.states = Some(State::ALL.into_iter().filter(|_| rng.one_in(8) == few).collect());
        }
        _ => filter.queue = example.map(|job| job.queue),
    }
    if rng.one_in(6) {
        let owner = example.and_then(|job| decode_owner(&job.spec).ok());
        (filter.topic, filter.tenant) = owner.unzip();
    }
    filter
}

impl Listing {
    fn new(rng: &mut Rng, filter: Filter, began: u64) -> Self {
        Self {
            filter,
            limit: some_limit(rng, 100),
            chunk_max: some_limit(rng, 100),
            read_max: some_limit(rng, 1_000),
            began,
            since: began,
            before: None,
            ids: BTreeSet::new(),
        }
    }

    /// Reads the next page, whose single reads see the states after `next_commit`.
    fn read(
        &self,
        history: &History,
        shards: Shards,
        next_commit: impl FnMut() -> u64 + Send,
    ) -> Result<Page, shard::Error> {
        let store = PastStore::new(history, next_commit);
        let reader = Reader::new(&store, shards, &self.filter).with_limits(self.chunk_max, self.read_max);
        reader.page(self.before, self.limit)
    }

    /// Adds a page that was read up to the commit `until`. Returns a defect of it.
    fn add(&mut self, history: &History, shards: Shards, until: u64, page: &Page) -> Option<String> {
        if page.jobs.len() > self.limit {
            return Some(format!("{} jobs on a page of {}", page.jobs.len(), self.limit));
        }
        let mut before = self.before;
        for job in page.jobs.iter().map(|listed| &listed.job) {
            if before.is_some_and(|before| job.id >= before) {
                return Some(format!("{} comes after {before:?}", job.id));
            }
            let mut states = history.jobs_between((self.since, until), shards.owner(job.id.slot()), job.id);
            if !states.any(|state| state.is_some_and(|state| state == *job && matches(&self.filter, job))) {
                return Some(format!("{} in state {} was never like this since {}", job.id, job.state, self.since));
            }
            before = Some(job.id);
            self.ids.insert(job.id);
        }
        let last = page.next.or(before);
        if page.next.is_some_and(|next| before.is_some_and(|before| before < next) || self.before == Some(next)) {
            return Some(format!("after {before:?} the list continues at {:?}", page.next));
        }
        (self.before, self.since) = (last, until);
        None
    }

    /// A job that matched the filter all the time, and is not on any page.
    fn missing(&self, history: &History, shards: Shards, until: u64, coverage: &mut Coverage) -> Option<JobId> {
        for shard in shards.all() {
            for id in history.jobs(shard) {
                let mut was_live = BTreeSet::new();
                let matched = history.jobs_between((self.began, until), shard, id).all(|state| {
                    state.is_some_and(|job| {
                        was_live.insert(!job.state.is_terminal());
                        matches(&self.filter, &job)
                    })
                });
                if matched && !self.ids.contains(&id) {
                    return Some(id);
                }
                if matched && was_live.len() == 2 {
                    coverage.count("jobs that ended or were retried while listed");
                }
            }
        }
        None
    }
}

impl World {
    /// A client begins to read a list.
    pub(crate) fn begin_list(&mut self) {
        let began = self.readers.history.follow();
        let rng = &mut self.readers.rng;
        let example = rng.pick(&self.clients.jobs).and_then(|id| self.ledger.jobs.get(id));
        let filter = some_filter(rng, example.map(|known| &known.record));
        let listing = Listing::new(rng, filter, began);
        self.await_page(Box::new(listing));
    }

    fn await_page(&mut self, listing: Box<Listing>) {
        let delay = self.readers.delay();
        self.after(delay, Event::PageEnds { listing });
    }

    /// A client gets a page, and requests the next one.
    pub(crate) fn page_ends(&mut self, mut listing: Box<Listing>) -> Checked {
        let shards = self.scenario.shards;
        let Readers { rng, history } = &mut self.readers;
        let until = history.follow();
        let pace = rng.between(1, 20);
        let next_commit = interleaving(rng, history, (listing.since, until), pace);
        let page = listing.read(history, shards, next_commit);
        let Some(page) = self.readers.or_failed_over(page, listing.since)? else {
            self.coverage.count("lists broken by a failover");
            return Ok(());
        };
        let history = &self.readers.history;
        self.coverage.count("pages read");
        self.coverage.add("jobs listed", page.jobs.len() as u64);
        invariants::invariant_lists_are_linearizable(listing.add(history, shards, until, &page))?;
        if page.next.is_some() {
            self.await_page(listing);
            return Ok(());
        }
        self.coverage.count("lists read");
        let missing = listing.missing(history, shards, until, &mut self.coverage);
        let describe = |id| format!("{id} matched {:?} since commit {} and is missing", listing.filter, listing.began);
        invariants::invariant_lists_are_linearizable(missing.map(describe))
    }
}

#[cfg(test)]
mod tests;
