//! Counting again from the records what is kept up to date step by step.

use model::id::QueueId;
use model::job::Placement;
use model::spec::Lane;
use model::state::State;

use crate::placement::fit::Unfit;
use crate::placement::line::Class;
use crate::placement::roster::Member;
use crate::placement::unplaced::is_unplaced;
use crate::ready::TenantNumber;
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
        let mut states = [0u64; State::ALL.len()];
        // What has ended within this step is in memory until it is written, but counts no more.
        for entry in self.jobs.values().filter(|entry| !entry.job.state.is_terminal()) {
            let counts = active.entry(entry.job.queue).or_default();
            counts.0 += 1;
            counts.1 += u64::from(entry.job.state.is_on_runner());
            ready[entry.job.lane as usize] += u64::from(entry.in_ready);
            states[usize::from(entry.job.state.code())] += 1;
            let is_due = entry.job.eligible_at <= self.now || is_unplaced(&entry.job);
            let waits = entry.job.state == State::Scheduled && is_due;
            check(
                "a job in the ready index is scheduled",
                u64::from(entry.in_ready),
                u64::from(entry.in_ready && waits),
            )?;
        }
        for state in State::ALL {
            let index = usize::from(state.code());
            check(&format!("jobs that are {state}"), self.stats.states[index], states[index])?;
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
        for (id, runner) in self.runners.iter() {
            let in_hand = self.jobs.values().filter(|e| e.holder() == Some((*id, runner.incarnation))).count();
            let held: u32 = Lane::ALL.into_iter().map(|lane| runner.held(lane)).sum();
            let listed = self.jobs.values().filter(|e| e.job.runner().is_some_and(|(runner, _)| runner == *id)).count();
            check(&format!("jobs listed with {id}"), self.runners.jobs_of(*id).count() as u64, listed as u64)?;
            check(&format!("attempts with {id}"), u64::from(held), (in_hand + runner.lingering()) as u64)?;
        }
        self.recount_flows()?;
        self.recount_placement()
    }

    /// Compares what is kept for placement with a look at every runner.
    fn recount_placement(&self) -> Result<(), Miscount> {
        let here: Vec<&Member> = self.ready.staff.iter().filter(|member| member.is_here).collect();
        check("runners that are here", u64::from(self.ready.connected), here.len() as u64)?;
        for (number, fit) in self.ready.fits.iter().enumerate() {
            let Some(fit) = fit else { continue };
            let mut counted = Placement::default();
            let (mut spared, mut roomy) = (0, 0);
            for member in &here {
                let standing = member.standings[fit.key.lane as usize];
                match fit.key.check(&member.traits) {
                    Err(Unfit::OtherPool) => counted.other_pool += 1,
                    Err(Unfit::LackCapability) => counted.lack_capability += 1,
                    Err(Unfit::OtherLabels) => counted.other_labels += 1,
                    Ok(()) if standing.overloaded || standing.free == 0 => counted.busy += 1,
                    Ok(()) => counted.available += 1,
                }
                if fit.key.check(&member.traits).is_ok() {
                    let is_spared = standing.overloaded && fit.key.spares(&member.traits, &self.setup);
                    spared += u64::from(is_spared);
                    roomy += u64::from(standing.free > 0 && !is_spared);
                }
            }
            check("runners spared", u64::from(fit.spared), spared)?;
            check("runners with room", fit.roomy.len() as u64, roomy)?;
            let waiting: usize = fit.classes.iter().map(Class::len).sum();
            check("jobs that wait in one place", fit.waiting as u64, waiting as u64)?;
            if self.ready.counts(fit) != counted {
                let what = format!("runners for fit {number}: {:?} are {counted:?}", self.ready.counts(fit));
                return Err(Miscount { what, kept: 0, counted: 0 });
            }
        }
        self.recount_tenants()
    }

    fn recount_tenants(&self) -> Result<(), Miscount> {
        let mut running = vec![0u64; self.ready.tenants.count() as usize];
        for entry in self.jobs.values().filter(|entry| entry.job.state.is_on_runner()) {
            if let Some(number) = running.get_mut(self.ready.tenant_of(entry.job.queue).0 as usize) {
                *number += 1;
            }
        }
        for (number, counted) in running.into_iter().enumerate() {
            let kept = self.ready.tenants.on_runner(TenantNumber(number as u32));
            check("jobs of a tenant with runners", u64::from(kept), counted)?;
        }
        Ok(())
    }
}

fn check(what: &str, kept: u64, counted: u64) -> Result<(), Miscount> {
    if kept == counted { Ok(()) } else { Err(Miscount { what: what.to_owned(), kept, counted }) }
}
