//! The audit logs of all shards, verified entry by entry.

use std::collections::{BTreeMap, BTreeSet};

use model::audit::{Action, AuditEntry, Head};
use model::codec;
use model::id::{JobId, QueueId, ShardId};

use crate::coverage::Coverage;
use crate::invariants::{self, Checked};

#[derive(Debug, Default)]
pub struct AuditLogs {
    heads: BTreeMap<ShardId, Head>,
    /// Entries of the newest commit.
    entries: Vec<AuditEntry>,
    /// Requested operations on jobs.
    requested: BTreeSet<(JobId, &'static str)>,
    /// Requested operations on workflows and schedules, by their name in the log.
    requested_by_name: BTreeSet<(String, &'static str)>,
}

impl AuditLogs {
    pub fn record_request(&mut self, job: JobId, action: Action) {
        self.requested.insert((job, action.as_str()));
    }

    /// Records a request for an operation on a workflow or a schedule.
    pub fn record_named_request(&mut self, name: String, action: Action) {
        self.requested_by_name.insert((name, action.as_str()));
    }

    /// Starts a new commit.
    pub fn begin_commit(&mut self) {
        self.entries.clear();
    }

    /// Verifies a written entry: it must be the next one of the chain.
    pub fn verify(&mut self, shard: ShardId, entry_key: &[u8], value: &[u8], coverage: &mut Coverage) -> Checked {
        let head = self.heads.entry(shard).or_insert(Head::START);
        let entry = invariants::invariant_the_audit_chain_is_unbroken(shard, head.follow(value), entry_key)?;
        let by_name = |name: &String| self.requested_by_name.contains(&(name.clone(), entry.action.as_str()));
        let requested = entry.job.is_some_and(|job| self.requested.contains(&(job, entry.action.as_str())))
            || entry.message.as_ref().is_some_and(by_name);
        invariants::invariant_audited_operations_were_requested(&entry, requested)?;
        coverage.count("audit entries");
        coverage.count(entry.action.as_str());
        self.entries.push(entry);
        Ok(())
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
