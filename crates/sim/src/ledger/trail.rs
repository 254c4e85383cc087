//! The audit logs of all shards, followed link by link as they grow.

use std::collections::{BTreeMap, BTreeSet};

use model::audit::{Action, Entry, Head};
use model::codec;
use model::id::{JobId, QueueId, ShardId};

use crate::coverage::Coverage;
use crate::invariants::{self, Checked};

#[derive(Debug, Default)]
pub struct Trail {
    heads: BTreeMap<ShardId, Head>,
    /// Of the newest commit.
    entries: Vec<Entry>,
    /// What was ever asked to be done to a job.
    asked: BTreeSet<(JobId, &'static str)>,
    /// The same for workflows and schedules, by what the log calls them.
    asked_by_name: BTreeSet<(String, &'static str)>,
}

impl Trail {
    pub fn note_asked(&mut self, job: JobId, action: Action) {
        self.asked.insert((job, action.as_str()));
    }

    /// Somebody has asked for something to be done to a workflow or a schedule.
    pub fn note_asked_of(&mut self, name: String, action: Action) {
        self.asked_by_name.insert((name, action.as_str()));
    }

    /// A new commit is looked at.
    pub fn begin(&mut self) {
        self.entries.clear();
    }

    /// An entry was written; it must be the next one.
    pub fn follow(&mut self, shard: ShardId, place: &[u8], value: &[u8], coverage: &mut Coverage) -> Checked {
        let head = self.heads.entry(shard).or_insert(Head::START);
        let entry = invariants::invariant_the_chain_is_unbroken(shard, head.follow(value), place)?;
        let by_name = |name: &String| self.asked_by_name.contains(&(name.clone(), entry.action.as_str()));
        let asked = entry.job.is_some_and(|job| self.asked.contains(&(job, entry.action.as_str())))
            || entry.message.as_ref().is_some_and(by_name);
        invariants::invariant_acts_are_never_invented(&entry, asked)?;
        coverage.note("audit entries");
        coverage.note(entry.action.as_str());
        self.entries.push(entry);
        Ok(())
    }

    /// `stored` is what the shard has on record as the end of its chain.
    pub fn check_end(&self, shard: ShardId, stored: Option<&[u8]>) -> Checked {
        let end = self.heads.get(&shard).copied().unwrap_or(Head::START);
        let stored = stored.and_then(|bytes| codec::decode(bytes).ok());
        invariants::invariant_the_chain_ends_where_the_shard_says(shard, end, stored)
    }

    pub fn of_job(&self, id: JobId) -> Vec<&Entry> {
        self.entries.iter().filter(|entry| entry.job == Some(id)).collect()
    }

    pub fn of_queue(&self, id: QueueId) -> Vec<&Entry> {
        self.entries.iter().filter(|entry| entry.queue == Some(id)).collect()
    }

    /// Everything that the newest commit has entries about.
    pub fn subjects(&self) -> (BTreeSet<JobId>, BTreeSet<QueueId>) {
        let jobs = self.entries.iter().filter_map(|entry| entry.job).collect();
        let queues = self.entries.iter().filter_map(|entry| entry.queue).collect();
        (jobs, queues)
    }

    /// Whether somebody has paused or resumed this schedule with the newest commit.
    pub fn is_handled(&self, schedule: &str) -> bool {
        let handled = |entry: &&Entry| matches!(entry.action, Action::SchedulePaused | Action::ScheduleResumed);
        self.entries.iter().filter(handled).any(|entry| entry.message.as_deref() == Some(schedule))
    }

    pub fn policy_changes(&self) -> usize {
        self.entries.iter().filter(|entry| entry.action == Action::PolicyChanged).count()
    }
}
