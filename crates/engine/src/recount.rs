//! Counting again from the records what is kept up to date step by step.

use model::id::QueueId;
use model::spec::Lane;
use model::state::State;

use crate::shard::{Map, Shard};

/// A number that is not what the records say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: kept {kept}, counted {counted}")]
pub struct Miscount {
    pub what: String,
    pub kept: u64,
    pub counted: u64,
}

impl Shard {
    /// Compares every derived number with a count over the records.
    pub fn recount(&self) -> Result<(), Miscount> {
        let mut active: Map<QueueId, (u64, u64)> = Map::default();
        let mut ready = [0u64; Lane::ALL.len()];
        // What has ended within this step is in memory until it is written, but counts no more.
        for entry in self.jobs.values().filter(|entry| !entry.job.state.is_terminal()) {
            let counts = active.entry(entry.job.queue).or_default();
            counts.0 += 1;
            counts.1 += u64::from(entry.job.state.is_on_runner());
            ready[entry.job.lane as usize] += u64::from(entry.in_ready);
            let waits = entry.job.state == State::Scheduled && entry.job.eligible_at <= self.now;
            check(
                "a job in the ready index is scheduled",
                u64::from(entry.in_ready),
                u64::from(entry.in_ready && waits),
            )?;
        }
        for (id, entry) in &self.queues {
            let (jobs, on_runner) = active.get(id).copied().unwrap_or_default();
            check(&format!("active jobs of {id}"), entry.queue.counters.active, jobs)?;
            check(&format!("listed jobs of {id}"), entry.active.len() as u64, jobs)?;
            check(&format!("jobs of {id} with runners"), u64::from(entry.on_runner), on_runner)?;
        }
        for lane in Lane::ALL {
            check("ready jobs", self.ready.len(lane) as u64, ready[lane as usize])?;
        }
        for (id, runner) in &self.runners {
            let in_hand = self.jobs.values().filter(|e| e.holder() == Some((*id, runner.incarnation))).count();
            let held: u32 = Lane::ALL.into_iter().map(|lane| runner.held(lane)).sum();
            check(&format!("attempts with {id}"), u64::from(held), (in_hand + runner.lingering()) as u64)?;
        }
        Ok(())
    }
}

fn check(what: &str, kept: u64, counted: u64) -> Result<(), Miscount> {
    if kept == counted { Ok(()) } else { Err(Miscount { what: what.to_owned(), kept, counted }) }
}
