//! The audit logs of all shards, verified entry by entry.

use std::collections::{BTreeMap, BTreeSet};

use engine::Config;
use model::audit::{Action, AuditEntry, Head};
use model::codec;
use model::id::{JobId, QueueId, ShardId};
use model::key;
use model::time::Millis;

use crate::coverage::Coverage;
use crate::invariants::{self, Checked, RemovedEntry, Shortening};

#[derive(Debug, Default)]
pub struct AuditLogs {
    heads: BTreeMap<ShardId, Head>,
    /// Ends of the removed parts.
    starts: BTreeMap<ShardId, Head>,
    /// Entries on record.
    kept: BTreeMap<(ShardId, u64), RemovedEntry>,
    /// Entries removed by the newest commit.
    removed: Vec<RemovedEntry>,
    /// Entries of the newest commit.
    entries: Vec<AuditEntry>,
    /// Requested operations on jobs.
    requested: BTreeSet<(JobId, &'static str)>,
    /// Requested operations on workflows, schedules and nodes, by their message in the log.
    requested_by_name: BTreeSet<(String, &'static str)>,
}

impl AuditLogs {
    /// Empty logs with the same requests.
    pub fn of_requests(other: &Self) -> Self {
        let (requested, requested_by_name) = (other.requested.clone(), other.requested_by_name.clone());
        Self { requested, requested_by_name, ..Self::default() }
    }

    pub fn record_request(&mut self, job: JobId, action: Action) {
        self.requested.insert((job, action.as_str()));
    }

    /// Records a request for an operation on a workflow, a schedule or a node.
    pub fn record_named_request(&mut self, name: String, action: Action) {
        self.requested_by_name.insert((name, action.as_str()));
    }

    /// Starts a new commit.
    pub fn begin_commit(&mut self) {
        self.entries.clear();
        self.removed.clear();
    }

    /// Verifies a written entry: it must be the next one of the chain.
    pub fn verify(&mut self, shard: ShardId, entry_key: &[u8], value: &[u8], coverage: &mut Coverage) -> Checked {
        let head = self.heads.entry(shard).or_insert(Head::START);
        let entry = invariants::invariant_the_audit_chain_is_unbroken(shard, head.follow(value), entry_key)?;
        let by_name = |name: &String| self.requested_by_name.contains(&(name.clone(), entry.action.as_str()));
        let requested = entry.job.is_some_and(|job| self.requested.contains(&(job, entry.action.as_str())))
            || entry.message.as_ref().is_some_and(by_name);
        invariants::invariant_audited_operations_were_requested(&entry, requested)?;
        let removable = RemovedEntry { head: *head, at: entry.at };
        self.kept.insert((shard, entry.number), removable);
        coverage.count("audit entries");
        coverage.count(entry.action.as_str());
        self.entries.push(entry);
        Ok(())
    }

    /// An entry was removed; [`AuditLogs::check_start`] decides whether it had to be.
    pub fn remove(&mut self, shard: ShardId, entry_key: &[u8]) -> Checked {
        let known = key::number_of_audit(entry_key).and_then(|number| self.kept.remove(&(shard, number)));
        self.removed.push(invariants::invariant_removed_audit_entries_were_on_record(shard, entry_key, known)?);
        Ok(())
    }

    /// Checks the removals of the newest commit, and the chain from its checkpoint on. `stored`: the checkpoint on
    /// record, and all entries on record.
    pub fn check_start<'a>(
        &mut self,
        (shard, now): (ShardId, Millis),
        (stored, entries): (Option<&[u8]>, impl Iterator<Item = (&'a [u8], &'a [u8])>),
        config: &Config,
        coverage: &mut Coverage,
    ) -> Checked {
        let before = self.starts.get(&shard).copied().unwrap_or(Head::START);
        let signed = stored.and_then(|bytes| codec::decode(bytes).ok());
        let logged = self.entries.iter().filter(|entry| entry.action == Action::AuditShortened).count();
        let retention = config.audit_retention;
        let shortening = Shortening { shard, before, removed: &self.removed, signed, logged, retention, now };
        invariants::invariant_the_audit_log_is_shortened_in_order(&shortening)?;
        let Some(signed) = signed.filter(|_| !self.removed.is_empty()) else { return Ok(()) };
        let mut head = signed.checkpoint.head();
        for (entry_key, value) in entries {
            invariants::invariant_the_audit_chain_is_unbroken(shard, head.follow(value), entry_key)?;
        }
        let end = self.heads.get(&shard).copied().unwrap_or(Head::START);
        invariants::invariant_the_audit_head_is_the_end_of_the_chain(shard, end, Some(head))?;
        if self.starts.insert(shard, signed.checkpoint.head()).is_some() {
            coverage.count("audit log shortened again");
        }
        coverage.add("audit entries removed", self.removed.len() as u64);
        Ok(())
    }

    /// Whether entries of the shard were removed.
    pub fn is_shortened(&self, shard: ShardId) -> bool {
        self.starts.contains_key(&shard)
    }

    /// Compares the end of the chain with `stored`, the head on record.
    pub fn check_end(&self, shard: ShardId, stored: Option<&[u8]>) -> Checked {
        let end = self.heads.get(&shard).copied().unwrap_or(Head::START);
        let stored = stored.and_then(|bytes| codec::decode(bytes).ok());
        invariants::invariant_the_audit_head_is_the_end_of_the_chain(shard, end, stored)
    }

    pub fn of_job(&self, id: JobId) -> Vec<&AuditEntry> {
        self.entries.iter().filter(|entry| entry.job == Some(id)).collect()
    }

    pub fn of_queue(&self, id: QueueId) -> Vec<&AuditEntry> {
        self.entries.iter().filter(|entry| entry.queue == Some(id)).collect()
    }

    /// Jobs and queues with entries in the newest commit.
    pub fn subjects(&self) -> (BTreeSet<JobId>, BTreeSet<QueueId>) {
        let jobs = self.entries.iter().filter_map(|entry| entry.job).collect();
        let queues = self.entries.iter().filter_map(|entry| entry.queue).collect();
        (jobs, queues)
    }

    /// Whether the newest commit pauses or resumes this schedule.
    pub fn is_pause_changed(&self, schedule: &str) -> bool {
        let pauses = |entry: &&AuditEntry| matches!(entry.action, Action::SchedulePaused | Action::ScheduleResumed);
        self.entries.iter().filter(pauses).any(|entry| entry.message.as_deref() == Some(schedule))
    }

    pub fn policy_changes(&self) -> usize {
        self.entries.iter().filter(|entry| entry.action == Action::PolicyChanged).count()
    }
}
