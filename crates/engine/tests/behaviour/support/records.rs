//! The committed records of a shard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::{Config, Fetch, Fetched, OldAuditEntry, Settings, Shard};
use model::audit;
use model::batch::{Batch, Keyspace, Op, ops};
use model::change::Change;
use model::codec;
use model::dead_letter::DeadLetter;
use model::id::{Epoch, JobId, QueueId, RunnerId, WorkflowId};
use model::job::Job;
use model::key::{self, Day};
use model::queue::{Counters, Queue};
use model::state::State;
use model::time::Now;
use model::workflow::Schedule;

type Table = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone, Default)]
pub struct Records {
    tables: BTreeMap<Keyspace, Table>,
    /// Workflows that the next owner of the shard cannot read.
    pub unreadable: BTreeSet<WorkflowId>,
}

impl Records {
    /// Commits a batch; returns its events.
    pub fn commit(&mut self, batch: &Batch) -> Vec<Change> {
        let mut changes = Vec::new();
        for op in ops(batch.as_bytes()) {
            match op.expect("the engine writes readable batches") {
                Op::Put { keyspace, key, value } => {
                    self.tables.entry(keyspace).or_default().insert(key.to_vec(), value.to_vec());
                }
                Op::Delete { keyspace, key } => {
                    self.tables.entry(keyspace).or_default().remove(key);
                }
                Op::Event { payload } => changes.push(codec::decode(payload).expect("events can be read")),
            }
        }
        changes
    }

    pub fn table(&self, keyspace: Keyspace) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.tables.get(&keyspace).into_iter().flatten().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    pub fn len(&self, keyspace: Keyspace) -> usize {
        self.tables.get(&keyspace).map_or(0, BTreeMap::len)
    }

    pub fn remove(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.tables.entry(keyspace).or_default().remove(key);
    }

    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Option<&[u8]> {
        Some(self.tables.get(&keyspace)?.get(key)?.as_slice())
    }

    fn decode_job(&self, bytes: &[u8]) -> Job {
        let mut job = Job::decode(bytes).expect("records can be read");
        if job.lacks_spec() {
            let spec = self.get(Keyspace::Spec, &job.id.key()).expect("a large spec has a record of its own");
            job.spec = bytes::Bytes::copy_from_slice(spec);
        }
        job
    }

    /// A job, terminal or not.
    pub fn job(&self, id: JobId) -> Option<Job> {
        let live = self.get(Keyspace::Live, &id.key());
        let done = self.get(Keyspace::Done, &id.key());
        assert!(live.is_none() || done.is_none(), "{id} has a live and a finished record");
        live.or(done).map(|bytes| self.decode_job(bytes))
    }

    pub fn jobs(&self, keyspace: Keyspace) -> Vec<Job> {
        self.table(keyspace).map(|(_, value)| self.decode_job(value)).collect()
    }

    pub fn queue(&self, id: QueueId) -> Option<Queue> {
        self.get(Keyspace::Queues, &id.key()).map(|bytes| codec::decode(bytes).expect("queues can be read"))
    }

    pub fn queues(&self) -> Vec<Queue> {
        self.table(Keyspace::Queues).map(|(_, value)| codec::decode(value).expect("queues can be read")).collect()
    }

    /// Rehydrates a shard from the records.
    pub fn restore(&self, config: Config, settings: Arc<Settings>, epoch: Epoch, now: Now) -> Shard {
        let mut shard = Shard::new(config, settings, epoch, now);
        for queue in self.queues() {
            shard.restore_queue(queue);
        }
        for (key, value) in self.table(Keyspace::Runners) {
            let id = RunnerId::from_key(key).expect("a runner's key");
            shard.restore_runner(id, codec::decode(value).expect("cursors can be read"));
        }
        self.restore_workflows(&mut shard);
        for job in self.jobs(Keyspace::Live) {
            shard.restore_job(job);
        }
        for (key, value) in self.table(Keyspace::Grants) {
            shard.restore_grant(key, value).expect("grants can be read");
        }
        for (key, value) in self.table(Keyspace::Scans) {
            shard.restore_scan(key, value).expect("markers can be read");
        }
        for (key, _) in self.table(Keyspace::LateUpdates) {
            shard.restore_late_update(key);
        }
        for (key, _) in self.table(Keyspace::RejectedMessages) {
            shard.restore_rejected(key);
        }
        if let Some(day) = self.table(Keyspace::Keys).last().and_then(|(key, _)| Day::of_key(key)) {
            shard.restore_newest_key_day(day);
        }
        if self.get(Keyspace::Meta, key::META_NAMES_INDEXED).is_some() {
            shard.restore_names_indexed();
        }
        if let Some(head) = self.get(Keyspace::Meta, key::META_AUDIT) {
            shard.restore_audit(codec::decode(head).expect("the head of the audit log can be read"));
        }
        if let Some(start) = self.audit_start() {
            shard.restore_audit_start(start);
        }
        let newest_workflow = self.table(Keyspace::WorkflowsDone).last().and_then(|(key, _)| JobId::from_key(key));
        shard.reserve_ids_up_to(newest_workflow.map_or(0, |id| id.0));
        let newest_done = self.table(Keyspace::Done).last().and_then(|(key, _)| JobId::from_key(key));
        shard.reserve_ids_up_to(newest_done.map_or(0, |id| id.0));
        if let Some(last) = self.get(Keyspace::Meta, key::META_LAST_ID) {
            shard.reserve_ids_up_to(u64::from_be_bytes(last.try_into().expect("eight bytes")));
        }
        shard
    }

    /// The checkpoint at the beginning of the audit log.
    pub fn audit_start(&self) -> Option<audit::SignedCheckpoint> {
        let start = self.get(Keyspace::Meta, key::META_AUDIT_START);
        start.map(|start| codec::decode(start).expect("checkpoints can be read"))
    }

    /// The audit log; verifies its hash chain from the checkpoint on.
    pub fn audit(&self) -> Vec<audit::AuditEntry> {
        let mut head = self.audit_start().map_or(audit::Head::START, |start| start.checkpoint.head());
        let entries = self.table(Keyspace::Audit);
        let entries = entries.map(|(_, value)| head.follow(value).expect("an unbroken chain")).collect();
        let stored = self.get(Keyspace::Meta, key::META_AUDIT);
        let stored = stored.map_or(audit::Head::START, |head| codec::decode(head).expect("a head"));
        assert_eq!(stored, head, "the head matches the last entry");
        entries
    }

    pub fn dead_letter(&self, id: JobId) -> Option<DeadLetter> {
        self.get(Keyspace::DeadLetters, &id.key()).map(|bytes| codec::decode(bytes).expect("letters can be read"))
    }

    pub fn answer(&self, fetch: &Fetch) -> Fetched {
        match fetch {
            Fetch::Job { id } => {
                let job = self.get(Keyspace::Done, &id.key()).map(|bytes| Box::new(self.decode_job(bytes)));
                Fetched::Job { id: *id, job }
            }
            Fetch::Keys { keys, days } => {
                let find = |hash| {
                    let mut entries =
                        days.iter().filter_map(|day| self.get(Keyspace::Keys, &key::idempotency(*day, hash)));
                    entries.next().map(|bytes| codec::decode(bytes).expect("keys can be read"))
                };
                Fetched::Keys { entries: keys.iter().map(|hash| (*hash, find(*hash))).collect() }
            }
            Fetch::Finished { after, limit } => {
                let behind = self.jobs(Keyspace::Done).into_iter().filter(|job| job.id > *after);
                let jobs: Vec<Job> = behind.take(*limit).collect();
                Fetched::Finished { more: jobs.len() == *limit, jobs }
            }
            Fetch::OldKeys { before, limit } => {
                let old = |key: &&[u8]| key[..2] < before.0.to_be_bytes()[..];
                let keys = self.table(Keyspace::Keys).map(|(key, _)| key).filter(old);
                let keys: Vec<Vec<u8>> = keys.take(*limit).map(<[u8]>::to_vec).collect();
                Fetched::OldKeys { more: keys.len() == *limit, keys }
            }
            Fetch::OldAudit { after, before, limit } => {
                let entries = self.table(Keyspace::Audit).map(|(_, value)| audit::decode(value).expect("an entry"));
                let behind = entries.skip_while(|(_, entry)| entry.number <= after.number);
                let old = behind.take_while(|(_, entry)| entry.at < *before).map(|(link, entry)| OldAuditEntry {
                    number: entry.number,
                    link,
                    at: entry.at,
                    action: entry.action,
                });
                let entries: Vec<_> = old.take(*limit).collect();
                Fetched::OldAudit { more: entries.len() == *limit, entries }
            }
            Fetch::Workflow { .. }
            | Fetch::FinishedWorkflows { .. }
            | Fetch::WorkflowRows { .. }
            | Fetch::UnusedDefinitions { .. } => self.answer_workflows(fetch),
        }
    }

    /// Checks the index of queue tokens and schedule names.
    fn check_names(&self) {
        let tokens = self.queues().into_iter().filter_map(|queue| Some(key::queue_token(queue.token?).to_vec()));
        let schedules = self.table(Keyspace::Schedules).map(|(_, value)| {
            let schedule: Schedule = codec::decode(value).expect("schedules can be read");
            key::schedule_name(&schedule.name, schedule.id).to_vec()
        });
        let expected: BTreeSet<Vec<u8>> = tokens.chain(schedules).collect();
        let indexed =
            self.table(Keyspace::Meta).map(|(key, _)| key.to_vec()).filter(|key| !key[0].is_ascii_lowercase());
        assert_eq!(indexed.collect::<BTreeSet<_>>(), expected, "the index of names");
    }

    /// Checks all indexes and queue counters against the jobs. Counters include removed jobs, and a restored queue
    /// counts only jobs restored with it: `exact` means neither happened.
    pub fn check(&self, exact: bool) {
        self.check_names();
        let mut counts: BTreeMap<QueueId, Counters> = BTreeMap::new();
        let mut unsuccessful = 0;
        for job in self.jobs(Keyspace::Live).into_iter().chain(self.jobs(Keyspace::Done)) {
            *counts.entry(job.queue).or_default().of(job.state) += 1;
            let filed = self.get(Keyspace::ByQueue, &key::by_queue(job.queue, job.id));
            assert!(filed.is_some(), "{} is missing in the index of its queue", job.id);
            if job.state.is_terminal() && job.state != State::Succeeded {
                unsuccessful += 1;
                let filed = self.get(Keyspace::ByState, &key::by_state(job.state, job.id));
                assert!(filed.is_some(), "{} is missing in the index of state {}", job.id, job.state);
            }
        }
        assert_eq!(self.len(Keyspace::ByState), unsuccessful);
        assert_eq!(self.len(Keyspace::ByQueue), self.len(Keyspace::Live) + self.len(Keyspace::Done));
        for queue in self.queues() {
            let counted = counts.get(&queue.id).copied().unwrap_or_default();
            assert_eq!(queue.counters.active, counted.active, "active jobs of {}", queue.id);
            assert!(
                !exact || queue.counters == counted,
                "{}: recorded {:?}, counted {counted:?}",
                queue.id,
                queue.counters
            );
        }
    }
}
