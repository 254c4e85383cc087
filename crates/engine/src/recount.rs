//! Consistency check: recounts the incrementally maintained numbers from the records.

use model::id::QueueId;
use model::spec::ExecutorKind;
use model::state::State;

use crate::placement::TenantNumber;
use crate::placement::unplaced::is_unplaced;
use crate::shard::{Map, Shard};

/// An incrementally maintained number that differs from the records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {kept} maintained, {counted} counted")]
pub struct Miscount {
    pub what: String,
    pub kept: u64,
    pub counted: u64,
}

impl Shard {
    /// Compares every derived number with a count over the records.
    pub fn recount(&self) -> Result<(), Miscount> {
        let mut active: Map<QueueId, (u64, u64)> = Map::default();
        let mut ready = [0u64; ExecutorKind::ALL.len()];
        let mut states = [0u64; State::ALL.len()];
        // Jobs that ended in this step stay in memory until the flush but are not counted.
        for entry in self.jobs.iter().filter(|entry| !entry.job.state.is_terminal()) {
            let counts = active.entry(entry.job.queue).or_default();
            counts.0 += 1;
            counts.1 += u64::from(entry.job.state.is_on_runner());
            ready[entry.job.executor as usize] += u64::from(entry.is_ready());
            states[usize::from(entry.job.state.code())] += 1;
            let is_due = entry.job.eligible_at <= self.now || is_unplaced(&entry.job);
            let waits = entry.job.state == State::Scheduled && is_due;
            check(
                "a job in the ready index is scheduled",
                u64::from(entry.is_ready()),
                u64::from(entry.is_ready() && waits),
            )?;
        }
        for state in State::ALL {
            let index = usize::from(state.code());
            check(&format!("jobs that are {state}"), self.stats.states[index], states[index])?;
        }
        for (id, entry) in self.queues.iter() {
            let (jobs, on_runner) = active.get(&id).copied().unwrap_or_default();
            check(&format!("active jobs of {id}"), entry.queue().counters.active, jobs)?;
            check(&format!("listed jobs of {id}"), entry.active_jobs() as u64, jobs)?;
            check(&format!("jobs of {id} on runners"), u64::from(entry.on_runner()), on_runner)?;
        }
        for executor in ExecutorKind::ALL {
            check("ready jobs", self.ready.len(executor) as u64, ready[executor as usize])?;
        }
        for (id, runner) in self.runners.iter() {
            let assigned = self.jobs.iter().filter(|e| e.assignment() == Some((*id, runner.incarnation))).count();
            let in_flight: u32 = ExecutorKind::ALL.into_iter().map(|executor| runner.in_flight(executor)).sum();
            let listed = self.jobs.iter().filter(|e| e.job.runner().is_some_and(|(runner, _)| runner == *id)).count();
            check(&format!("jobs listed for {id}"), self.runners.jobs_of(*id).count() as u64, listed as u64)?;
            check(
                &format!("attempts in flight on {id}"),
                u64::from(in_flight),
                (assigned + runner.lingering()) as u64,
            )?;
        }
        let exclusive = self.jobs.iter().filter(|e| e.job.exclusive && e.job.state.is_on_runner()).count();
        check("exclusive attempts in flight", self.exclusive.in_flight() as u64, exclusive as u64)?;
        self.recount_workflows()?;
        self.ready.recount()?;
        self.recount_tenants()
    }

    fn recount_tenants(&self) -> Result<(), Miscount> {
        let mut running = vec![0u64; self.ready.tenants() as usize];
        for entry in self.jobs.iter().filter(|entry| entry.job.state.is_on_runner()) {
            if let Some(number) = running.get_mut(self.ready.tenant_of(entry.job.queue).0 as usize) {
                *number += 1;
            }
        }
        for (number, counted) in running.into_iter().enumerate() {
            let kept = self.ready.tenant_on_runner(TenantNumber(number as u32));
            check("jobs of a tenant on runners", u64::from(kept), counted)?;
        }
        self.recount_live_limits()
    }

    /// The slots in use of tenants with a limit of live jobs.
    fn recount_live_limits(&self) -> Result<(), Miscount> {
        // Leases are restored while the shard resumes.
        if self.resuming.is_some() {
            return Ok(());
        }
        let mut live = vec![0u64; self.ready.tenants() as usize];
        for entry in self.jobs.iter().filter(|entry| !entry.job.state.is_terminal()) {
            if let Some(number) = live.get_mut(self.ready.tenant_of(entry.job.queue).0 as usize) {
                *number += 1;
            }
        }
        for (number, counted) in live.into_iter().enumerate() {
            if let Some(kept) = self.ready.live_slots_in_use(TenantNumber(number as u32)) {
                check("live jobs of a tenant with a limit", u64::from(kept), counted)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn check(what: &str, kept: u64, counted: u64) -> Result<(), Miscount> {
    if kept == counted { Ok(()) } else { Err(Miscount { what: what.to_owned(), kept, counted }) }
}
