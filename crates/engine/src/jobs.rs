//! Live jobs: those that are not terminal, with the state derived from their records.
//!
//! A job's record is read-only outside of this module. [`Shard::fire`] is the one function that changes it.

mod transition;

use std::ops::Deref;

use model::id::{Incarnation, JobId, RunnerId};
use model::job::Job;
use model::machine::Fault;
use model::state::State;
use model::time::Millis;

use crate::placement::requirement::RequirementId;
use crate::shard::Map;

/// A job's record. It can be read everywhere and changed only in this module.
#[derive(Debug)]
pub(crate) struct Record(Job);

impl Deref for Record {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.0
    }
}

/// A job in memory with its derived state.
#[derive(Debug)]
pub(crate) struct LiveJob {
    pub job: Record,
    /// Changed since the last flush.
    dirty: bool,
    /// Has a record under `Live`.
    stored: bool,
    /// Reopened from this terminal state; has a record under `Done`.
    reopened_from: Option<State>,
    /// Present in the ready queue.
    is_ready: bool,
    requirement: Option<RequirementId>,
    /// When a waiting job is checked again.
    wakes_at: CompactTime,
    /// When the limit of the current state is reached, on the steady clock.
    limit_at: CompactTime,
    /// The newest inventory request at the time of dispatch.
    dispatched_after: u64,
    /// The runner has accepted the current attempt. Not on record: an inventory says so again.
    accepted: bool,
    /// Failed policy checks in a row.
    policy_misses: u8,
    /// The result is scanned after it is shown.
    scan_after: bool,
    /// A decision about the attempt in flight, queued in the backlog.
    pending: Option<PendingDecision>,
}

/// The allocator's size class of today: the next one is 64 bytes larger.
const _: () = assert!(size_of::<LiveJob>() <= 448);

/// An optional time in eight bytes: there are millions of live jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CompactTime(Millis);

impl CompactTime {
    /// Never reached.
    const NONE: Millis = Millis(u64::MAX);

    fn get(self) -> Option<Millis> {
        (self.0 != Self::NONE).then_some(self.0)
    }
}

impl From<Option<Millis>> for CompactTime {
    fn from(time: Option<Millis>) -> Self {
        Self(time.unwrap_or(Self::NONE))
    }
}

/// What happens to an attempt after its runner restarted, was lost, or does not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingDecision {
    /// A newer incarnation of the runner has the attempt in flight. Its slot counts as taken from the decision on.
    Adopt(Incarnation),
    /// `is_gone`: the runner has reported that it does not have the attempt.
    Lose { fault: Fault, is_gone: bool },
    /// Its runner is drained or given up: the attempt is taken back.
    Retract,
    /// Its runner is given up, and there is no other: the job ends.
    Abandon,
}

impl LiveJob {
    pub fn new(job: Job) -> Self {
        Self {
            job: Record(job),
            dirty: false,
            stored: false,
            reopened_from: None,
            is_ready: false,
            requirement: None,
            wakes_at: CompactTime::from(None),
            limit_at: CompactTime::from(None),
            dispatched_after: 0,
            accepted: false,
            policy_misses: 0,
            scan_after: false,
            pending: None,
        }
    }

    /// A job rebuilt from its record under `Live`.
    pub fn restored(job: Job) -> Self {
        Self { stored: true, ..Self::new(job) }
    }

    /// A terminal job fetched from the store for an operation.
    pub fn fetched(job: Job) -> Self {
        Self { reopened_from: Some(job.state), ..Self::new(job) }
    }

    pub fn into_job(self) -> Job {
        self.job.0
    }

    /// The runner with the current attempt in flight, including an adoption that is not on record yet.
    pub fn assignment(&self) -> Option<(RunnerId, Incarnation)> {
        let (runner, known) = self.job.runner()?;
        match self.pending {
            Some(PendingDecision::Adopt(newer)) => Some((runner, newer)),
            Some(PendingDecision::Lose { .. } | PendingDecision::Retract | PendingDecision::Abandon) | None => {
                Some((runner, known))
            }
        }
    }

    pub fn pending(&self) -> Option<PendingDecision> {
        self.pending
    }

    pub fn set_pending(&mut self, decision: Option<PendingDecision>) {
        self.pending = decision;
    }

    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    pub fn set_ready(&mut self, is_ready: bool) {
        self.is_ready = is_ready;
    }

    pub fn requirement(&self) -> Option<RequirementId> {
        self.requirement
    }

    pub fn set_requirement(&mut self, requirement: RequirementId) {
        self.requirement = Some(requirement);
    }

    pub fn wakes_at(&self) -> Option<Millis> {
        self.wakes_at.get()
    }

    /// Returns the time set before.
    pub fn set_wakes_at(&mut self, at: Option<Millis>) -> Option<Millis> {
        std::mem::replace(&mut self.wakes_at, CompactTime::from(at)).get()
    }

    pub fn limit_at(&self) -> Option<Millis> {
        self.limit_at.get()
    }

    pub fn set_limit_at(&mut self, at: Option<Millis>) {
        self.limit_at = CompactTime::from(at);
    }

    pub fn is_accepted(&self) -> bool {
        self.accepted
    }

    pub fn set_accepted(&mut self, accepted: bool) {
        self.accepted = accepted;
    }

    pub fn dispatched_after(&self) -> u64 {
        self.dispatched_after
    }

    pub fn set_dispatched_after(&mut self, inventory: u64) {
        self.dispatched_after = inventory;
    }

    /// Counts a failed policy check. Returns how many came before it in a row.
    pub fn count_policy_miss(&mut self) -> u8 {
        let misses = self.policy_misses;
        self.policy_misses = misses.saturating_add(1);
        misses
    }

    pub fn reset_policy_misses(&mut self) {
        self.policy_misses = 0;
    }

    /// Sets how the output policy treats the result of the current attempt.
    pub fn set_output_policy(&mut self, hold_until_scanned: bool, scan_after: bool) {
        self.job.0.hold_until_scanned = hold_until_scanned;
        self.scan_after = scan_after;
    }

    /// Whether the result is still to be scanned after it is shown. Resets the mark.
    pub fn take_scan_after(&mut self) -> bool {
        std::mem::take(&mut self.scan_after)
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty
    }
}

/// How a job's record is to be moved between keyspaces by the flush.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    /// There is a record under `Live`.
    pub from_live: bool,
    /// There is a record under `Done`, filed under this state.
    pub from_done: Option<State>,
}

/// All live jobs of a shard.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    live: Map<JobId, Box<LiveJob>>,
    dirty: Vec<JobId>,
}

impl Jobs {
    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn contains(&self, id: JobId) -> bool {
        self.live.contains_key(&id)
    }

    pub fn get(&self, id: JobId) -> Option<&LiveJob> {
        self.live.get(&id).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, id: JobId) -> Option<&mut LiveJob> {
        self.live.get_mut(&id).map(Box::as_mut)
    }

    pub fn iter(&self) -> impl Iterator<Item = &LiveJob> {
        self.live.values().map(Box::as_ref)
    }

    /// Ids in the order of creation.
    pub fn sorted_ids(&self) -> Vec<JobId> {
        let mut ids: Vec<JobId> = self.live.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub fn insert(&mut self, entry: LiveJob) {
        self.live.insert(entry.job.id, Box::new(entry));
    }

    /// Adds a new job, to be written by the next flush. Returns the estimated size of its record.
    pub fn create(&mut self, job: Job, requirement: RequirementId) -> usize {
        let bytes = job.record_bytes();
        self.dirty.push(job.id);
        self.insert(LiveJob { dirty: true, requirement: Some(requirement), ..LiveJob::new(job) });
        bytes
    }

    pub fn remove(&mut self, id: JobId) -> Option<Box<LiveJob>> {
        self.live.remove(&id)
    }

    pub fn take_dirty(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.dirty)
    }

    /// Gives the buffer of [`Jobs::take_dirty`] back for reuse.
    pub fn return_buffer(&mut self, mut buffer: Vec<JobId>) {
        buffer.clear();
        debug_assert!(self.dirty.is_empty(), "the flush changed a job");
        self.dirty = buffer;
    }

    /// Notes that a job's record is about to be written, and where it is stored so far.
    pub fn flush(&mut self, id: JobId) -> Option<(&LiveJob, Move)> {
        let entry = self.live.get_mut(&id)?;
        let moved = Move { from_live: entry.stored, from_done: entry.reopened_from.take() };
        entry.dirty = false;
        entry.stored = !entry.job.state.is_terminal();
        Some((entry, moved))
    }
}
