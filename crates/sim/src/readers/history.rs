//! The states of the store after each commit, for reads that take time: other commits land between their single reads.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::batch::{Keyspace, Op, ops};
use model::id::{JobId, ShardId};
use model::job::Job;
use parking_lot::Mutex;
use store::{Committed, Cursor, Error, EventReader, Key, ModelStore, Order, Position, Range, Store, StoreId, Wrapper};

/// Keyspaces whose states are kept.
const KEPT: [Keyspace; 5] = [Keyspace::Live, Keyspace::Done, Keyspace::Spec, Keyspace::ByState, Keyspace::ByQueue];

/// The value of a key from a commit on.
struct Version {
    commit: u64,
    value: Option<Bytes>,
}

/// All commits of a store in their order, and the values of keys after each of them.
pub struct History {
    store: ModelStore,
    /// Reads the commits after those in the log.
    new_commits: Mutex<Box<dyn EventReader>>,
    /// A failover is a commit without contents.
    log: Vec<Committed>,
    /// Identity of the store from a commit on, oldest first.
    ids: Vec<(u64, StoreId)>,
    tables: BTreeMap<(ShardId, Keyspace), BTreeMap<Key, Vec<Version>>>,
    /// Commits that retried or removed an ended job, and failovers, oldest first.
    removals: Vec<u64>,
}

impl History {
    /// The history of a store without commits.
    pub fn new(store: &ModelStore) -> Self {
        let new_commits = store.oldest_cursor().and_then(|start| store.events(&start));
        let new_commits = Mutex::new(new_commits.expect("no commit of a new store has expired"));
        Self {
            store: store.clone(),
            new_commits,
            log: Vec::new(),
            ids: vec![(0, store.id())],
            tables: BTreeMap::new(),
            removals: Vec::new(),
        }
    }

    /// The store has failed over, and every commit before that was read: the failover is a commit that restores the
    /// values before the lost ones.
    pub fn fail_over(&mut self) {
        let commit = self.log.len() as u64 + 1;
        for ((shard, keyspace), table) in &mut self.tables {
            for (key, versions) in table {
                let value = self.store.value(*shard, *keyspace, key);
                if versions.last().is_some_and(|last| last.value != value) {
                    versions.push(Version { commit, value });
                }
            }
        }
        self.log.push(Committed {
            shard: ShardId(0),
            position: Position::NONE,
            events: Vec::new(),
            batch: Bytes::new(),
        });
        self.ids.push((commit, self.store.id()));
        self.removals.push(commit);
        let new_commits = self.store.newest_cursor().and_then(|newest| self.store.events(&newest));
        *self.new_commits.get_mut() = new_commits.expect("the newest commit has not expired");
    }

    pub fn has_failed_over(&self, since: u64) -> bool {
        self.ids.last().is_some_and(|(commit, _)| *commit > since)
    }

    /// Identity of the store after a commit.
    fn id(&self, commit: u64) -> StoreId {
        let newer = self.ids.partition_point(|(since, _)| *since <= commit);
        self.ids[newer - 1].1
    }

    /// Reads the new commits. Returns the number of all commits so far.
    pub fn follow(&mut self) -> u64 {
        while let Some(committed) = self.new_commits.get_mut().next().expect("no commit of a simulated store expires") {
            self.add(&committed);
            self.log.push(committed);
        }
        self.log.len() as u64
    }

    fn add(&mut self, committed: &Committed) {
        let commit = self.log.len() as u64 + 1;
        for op in ops(&committed.batch) {
            let (keyspace, key, value) = match op.expect("a batch in memory decodes") {
                Op::Put { keyspace, key, value } => (keyspace, key, Some(committed.batch.slice_ref(value))),
                Op::Delete { keyspace, key } => (keyspace, key, None),
                Op::Event { .. } => continue,
            };
            if KEPT.contains(&keyspace) {
                if keyspace == Keyspace::Done && value.is_none() {
                    self.removals.push(commit);
                }
                let table = self.tables.entry((committed.shard, keyspace)).or_default();
                table.entry(Key::new(key)).or_default().push(Version { commit, value });
            }
        }
    }

    /// The first commit after `commit` that retried or removed an ended job.
    pub fn next_removal(&self, commit: u64) -> Option<u64> {
        self.removals.get(self.removals.partition_point(|removal| *removal <= commit)).copied()
    }

    fn versions(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> &[Version] {
        let table = self.tables.get(&(shard, keyspace));
        table.and_then(|table| table.get(&Key::new(key))).map_or(&[], Vec::as_slice)
    }

    fn get(&self, commit: u64, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Option<Bytes> {
        value_after(commit, self.versions(shard, keyspace, key))
    }

    fn scan(&self, commit: u64, shard: ShardId, keyspace: Keyspace, range: Range) -> Vec<(Key, Bytes)> {
        let Some(table) = self.tables.get(&(shard, keyspace)) else { return Vec::new() };
        let keys = table.range((range.start, range.end));
        keys.filter_map(|(key, versions)| Some((*key, value_after(commit, versions)?))).collect()
    }

    /// All jobs of a shard so far.
    pub fn jobs(&self, shard: ShardId) -> impl Iterator<Item = JobId> {
        let keys = |keyspace| self.tables.get(&(shard, keyspace)).into_iter().flat_map(BTreeMap::keys);
        let ids: BTreeSet<JobId> =
            keys(Keyspace::Live).chain(keys(Keyspace::Done)).filter_map(|key| JobId::from_key(key)).collect();
        ids.into_iter()
    }

    /// A job after a commit.
    pub fn job(&self, commit: u64, shard: ShardId, id: JobId) -> Option<Job> {
        let get = |keyspace| self.get(commit, shard, keyspace, &id.key());
        let record = get(Keyspace::Live).or_else(|| get(Keyspace::Done))?;
        let mut job = Job::decode(&record).ok()?;
        if job.lacks_spec() {
            job.spec = get(Keyspace::Spec)?;
        }
        Some(job)
    }

    /// A job after each commit from `since` to `until` that could have changed it, oldest first.
    pub fn jobs_between(
        &self,
        (since, until): (u64, u64),
        shard: ShardId,
        id: JobId,
    ) -> impl Iterator<Item = Option<Job>> {
        let versions = |keyspace| self.versions(shard, keyspace, &id.key());
        let written = versions(Keyspace::Live).iter().chain(versions(Keyspace::Done)).map(|version| version.commit);
        let mut commits: Vec<u64> = written.filter(|commit| (since + 1..=until).contains(commit)).collect();
        commits.push(since);
        commits.sort_unstable();
        commits.dedup();
        commits.into_iter().map(move |commit| self.job(commit, shard, id))
    }
}

fn value_after(commit: u64, versions: &[Version]) -> Option<Bytes> {
    let newer = versions.partition_point(|version| version.commit <= commit);
    versions[..newer].last()?.value.clone()
}

/// The store as a slow reader sees it: each read sees the state after a later commit. Like the embedded store it has one
/// log for all shards.
pub struct PastStore<'a> {
    history: &'a History,
    commits: Mutex<Box<dyn FnMut() -> u64 + Send + 'a>>,
}

impl<'a> PastStore<'a> {
    /// `next_commit` chooses the commit whose state the next read sees. It never goes back.
    pub fn new(history: &'a History, next_commit: impl FnMut() -> u64 + Send + 'a) -> Self {
        Self { history, commits: Mutex::new(Box::new(next_commit)) }
    }

    fn next_commit(&self) -> u64 {
        (self.commits.lock())()
    }
}

impl Wrapper for PastStore<'_> {
    fn inner(&self) -> &dyn Store {
        &self.history.store
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(self.history.get(self.next_commit(), shard, keyspace, key))
    }

    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error> {
        let mut found = self.history.scan(self.next_commit(), shard, keyspace, range);
        match order {
            Order::Ascending => {}
            Order::Descending => found.reverse(),
        }
        found.truncate(limit);
        Ok(found)
    }

    fn newest_cursor(&self) -> Result<Cursor, Error> {
        let newest = self.next_commit();
        Ok(Cursor::new(self.history.id(newest), vec![Position(newest)]))
    }

    fn events(&self, after: &Cursor) -> Result<Box<dyn EventReader>, Error> {
        let last = *after.positions().first().ok_or(Error::ForeignCursor)?;
        let newest = self.next_commit();
        let store = self.history.id(newest);
        if after.store() != store {
            return Err(Error::ForeignCursor);
        }
        let unread = self.history.log[last.0 as usize..newest as usize].to_vec();
        Ok(Box::new(PastEvents { store, last, unread: unread.into_iter() }))
    }
}

struct PastEvents {
    store: StoreId,
    last: Position,
    unread: std::vec::IntoIter<Committed>,
}

impl EventReader for PastEvents {
    fn next(&mut self) -> Result<Option<Committed>, Error> {
        let Some(committed) = self.unread.next() else { return Ok(None) };
        self.last = self.last.next();
        Ok(Some(Committed { position: self.last, ..committed }))
    }

    fn cursor(&self) -> Cursor {
        Cursor::new(self.store, vec![self.last])
    }
}
