//! Bringing runners and what is asked for together, without comparing each of them with all of the others.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::RunnerId;
use model::job::Placement;
use model::spec::Lane;

use crate::placement::ask::AskId;
use crate::placement::crew::CrewKey;
use crate::placement::fit::{Fit, FitId, FitKey, Standing};
use crate::placement::staff::{Fact, RunnerIndex, Traits};
use crate::ready::Ready;

/// Fits that nobody waits in are kept up to this many: the next job may ask for the same, and to find out again who is
/// fit takes longer than to remember it.
pub(crate) const IDLE_FITS_MAX: usize = 256;

/// How many fits are asked, when one is made, whether they are still needed.
const FITS_ASKED: usize = 16;

/// A runner as far as placement is concerned.
#[derive(Debug)]
pub(crate) struct Member {
    pub id: RunnerId,
    pub traits: Traits,
    pub is_here: bool,
    pub standings: [Standing; Lane::ALL.len()],
    pub held: [u32; Lane::ALL.len()],
    /// What it is fit for, and whether it gets nothing of that while it is overloaded.
    pub fits: Vec<(FitId, bool)>,
}

impl Member {
    pub fn new(id: RunnerId) -> Self {
        Self {
            id,
            traits: Traits::default(),
            is_here: false,
            standings: Default::default(),
            held: [0; Lane::ALL.len()],
            fits: Vec::new(),
        }
    }
}

impl Ready {
    pub fn member(&self, index: RunnerIndex) -> Option<&Member> {
        self.staff.get(index.0 as usize)
    }

    /// The fit for an ask, found or made.
    pub(crate) fn fit_of(&mut self, ask: AskId) -> Option<FitId> {
        let asked = self.asks.get(ask)?;
        if let Some((id, generation)) = asked.fit
            && let Some(fit) = self.fits.get_mut(id.0 as usize).and_then(Option::as_mut)
            && fit.generation == generation
        {
            fit.used = true;
            return Some(id);
        }
        let key = &asked.key;
        let crew = CrewKey { pools: key.pools(&self.setup), requires: key.requires.clone() };
        let key = FitKey { lane: key.lane, crew, labels: key.labels.clone() };
        let id = match self.fit_by_key.get(&key) {
            Some(id) => *id,
            None => self.add_fit(Arc::new(key)),
        };
        let generation = self.fit(id)?.generation;
        self.asks.get_mut(ask)?.fit = Some((id, generation));
        Some(id)
    }

    /// The facts that all runners that are fit have, the rarest first; none if only their pools say who they are.
    fn rarest_fact(&self, key: &FitKey) -> Option<Fact> {
        let labels = key.labels.iter().map(|(name, value)| Fact::Label(name.clone(), value.clone()));
        let capabilities = key.crew.requires.iter().cloned().map(Fact::Capability);
        labels.chain(capabilities).min_by_key(|fact| self.runners_by.count(fact))
    }

    /// Every runner that is in one of the pools, once.
    fn in_pools(&self, pools: &[String]) -> Vec<RunnerIndex> {
        let facts: Vec<Fact> = pools.iter().cloned().map(Fact::Pool).collect();
        match facts.as_slice() {
            [fact] => self.runners_by.by(fact).collect(),
            facts => {
                let all: BTreeSet<RunnerIndex> = facts.iter().flat_map(|fact| self.runners_by.by(fact)).collect();
                all.into_iter().collect()
            }
        }
    }

    fn fit_members(&self, key: &FitKey) -> Vec<RunnerIndex> {
        let mut found: Vec<RunnerIndex> = match self.rarest_fact(key) {
            Some(fact) => self.runners_by.by(&fact).collect(),
            None => self.in_pools(&key.crew.pools),
        };
        found.retain(|index| self.member(*index).is_some_and(|member| key.check(&member.traits).is_ok()));
        found
    }

    fn add_fit(&mut self, key: Arc<FitKey>) -> FitId {
        self.forget_idle_fits();
        let number = self.unused_fits.pop().unwrap_or(self.fits.len() as u32);
        let id = FitId(number);
        if number as usize == self.fits.len() {
            self.fits.push(None);
        }
        let filed_under = match self.rarest_fact(&key) {
            Some(fact) => vec![fact],
            None => key.crew.pools.iter().cloned().map(Fact::Pool).collect(),
        };
        for fact in &filed_under {
            self.fits_by.add(fact.clone(), id);
        }
        let pools = self.in_pools_if_new(&key.crew);
        let staff = &self.staff;
        let traits = || pools.iter().map(|index| &staff[index.0 as usize].traits).collect();
        self.crews.join(&key.crew, traits);
        self.fit_generation += 1;
        let mut fit = Fit::new(key.clone(), self.fit_generation, filed_under);
        for index in self.fit_members(&key) {
            let member = &mut self.staff[index.0 as usize];
            let spares = key.spares(&member.traits, &self.setup);
            member.fits.push((id, spares));
            fit.members += 1;
            fit.count((member.id, index), spares, Some(member.standings[key.lane as usize]), None);
        }
        for class in &mut fit.classes {
            class.set_contended(fit.members > 0, &mut self.tenants);
        }
        self.fits[number as usize] = Some(fit);
        self.fit_by_key.insert(key, id);
        id
    }

    fn in_pools_if_new(&self, crew: &CrewKey) -> Vec<RunnerIndex> {
        if self.crews.is_known(crew) { Vec::new() } else { self.in_pools(&crew.pools) }
    }

    /// Asks some fits whether they are still needed, and forgets those that are not.
    fn forget_idle_fits(&mut self) {
        for _ in 0..FITS_ASKED {
            if self.fit_by_key.len() < IDLE_FITS_MAX {
                return;
            }
            self.fit_hand = (self.fit_hand + 1) % self.fits.len();
            let Some(fit) = &mut self.fits[self.fit_hand] else { continue };
            let needed = std::mem::take(&mut fit.used) || fit.waiting > 0;
            if !needed {
                self.drop_fit(FitId(self.fit_hand as u32));
            }
        }
    }

    fn drop_fit(&mut self, id: FitId) {
        let Some(fit) = self.fits.get(id.0 as usize).and_then(Option::as_ref) else { return };
        for index in self.fit_members(&fit.key.clone()) {
            self.staff[index.0 as usize].fits.retain(|(other, _)| *other != id);
        }
        self.cool(id);
        let Some(fit) = self.fits[id.0 as usize].take() else { return };
        for fact in &fit.filed_under {
            self.fits_by.remove(fact, id);
        }
        self.crews.leave(&fit.key.crew);
        self.fit_by_key.remove(&fit.key);
        self.arming.remove(&id);
        self.unused_fits.push(id.0);
    }

    /// Changes what a fit knows of its runners, and does what follows for its jobs.
    fn change_fit(&mut self, id: FitId, change: impl FnOnce(&mut Fit)) {
        let Some(fit) = self.fits.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let (was_unplaced, had_members) = (fit.waiting > 0 && fit.unplaced().is_some(), fit.members > 0);
        change(fit);
        if had_members != (fit.members > 0) {
            for class in &mut fit.classes {
                class.set_contended(!had_members, &mut self.tenants);
            }
        }
        if fit.waiting == 0 {
            return;
        }
        if fit.unplaced().is_some() && !was_unplaced {
            self.begin_arming(id);
        }
        self.heat(id);
    }

    /// A runner has come, or has become another.
    pub fn runner_comes(&mut self, index: RunnerIndex, traits: Traits) {
        let Some(member) = self.staff.get_mut(index.0 as usize) else { return };
        member.is_here = true;
        member.traits = traits;
        let facts = member.traits.facts();
        self.connected += 1;
        self.crews.count(&member.traits, true);
        let mut found = BTreeSet::new();
        for fact in facts {
            found.extend(self.fits_by.by(&fact));
            self.runners_by.add(fact, index);
        }
        for id in found {
            let Some(fit) = self.fit(id) else { continue };
            let member = &self.staff[index.0 as usize];
            if fit.key.check(&member.traits).is_err() {
                continue;
            }
            let spares = fit.key.spares(&member.traits, &self.setup);
            let (runner, standing) = (member.id, member.standings[fit.key.lane as usize]);
            self.staff[index.0 as usize].fits.push((id, spares));
            self.change_fit(id, |fit| {
                fit.members += 1;
                fit.count((runner, index), spares, Some(standing), None);
            });
        }
    }

    pub fn runner_goes(&mut self, index: RunnerIndex) {
        let Some(member) = self.staff.get_mut(index.0 as usize).filter(|member| member.is_here) else { return };
        member.is_here = false;
        self.connected -= 1;
        self.crews.count(&member.traits, false);
        let (id, standings) = (member.id, member.standings);
        for fact in member.traits.facts() {
            self.runners_by.remove(&fact, index);
        }
        for (fit, spares) in std::mem::take(&mut self.staff[index.0 as usize].fits) {
            self.change_fit(fit, |fit| {
                fit.members -= 1;
                fit.count((id, index), spares, None, Some(standings[fit.key.lane as usize]));
            });
        }
    }

    /// A runner has more room or less, or is more or less busy.
    pub fn runner_stands(
        &mut self,
        index: RunnerIndex,
        standings: [Standing; Lane::ALL.len()],
        held: [u32; Lane::ALL.len()],
    ) {
        let Some(member) = self.staff.get_mut(index.0 as usize) else { return };
        for (lane, all) in self.held.iter_mut().enumerate() {
            *all = *all + held[lane] - member.held[lane];
        }
        member.held = held;
        let old = std::mem::replace(&mut member.standings, standings);
        if old == standings {
            return;
        }
        let id = member.id;
        for at in 0..self.staff[index.0 as usize].fits.len() {
            let (fit, spares) = self.staff[index.0 as usize].fits[at];
            if self.fit(fit).is_none_or(|fit| old[fit.key.lane as usize] == standings[fit.key.lane as usize]) {
                continue;
            }
            self.change_fit(fit, |fit| {
                let lane = fit.key.lane as usize;
                fit.count((id, index), spares, Some(standings[lane]), Some(old[lane]));
            });
        }
    }

    /// How it stands with all runners there are, for one that is about to be placed.
    pub fn counts(&self, fit: &Fit) -> Placement {
        let crew = self.crews.get(&fit.key.crew);
        Placement {
            score_milli: 0,
            preferred: false,
            available: fit.available,
            busy: fit.members - fit.available,
            other_pool: self.connected - crew.in_pools,
            lack_capability: crew.in_pools - crew.capable,
            other_labels: crew.capable - fit.members,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::spec::Wants;
    use model::time::Millis;

    use super::*;
    use crate::setup::Setup;

    fn wanting(name: usize) -> Wants {
        Wants { labels: vec![("name".to_owned(), name.to_string())], ..Wants::default() }
    }

    #[test]
    fn fits_and_asks_that_nobody_needs_are_forgotten() {
        let shards = model::id::Shards::new(1).unwrap();
        let leases = crate::leases::Leases::new(model::id::ShardId(0), shards, model::id::Epoch(1));
        let mut ready = Ready::new(Arc::new(Setup::default()), leases, Millis(1), Millis(1));
        let often = ready.join_ask(Lane::Echo, wanting(0));
        let kept = ready.fit_of(often);
        for name in 1..10 * IDLE_FITS_MAX {
            let ask = ready.join_ask(Lane::Echo, wanting(name));
            assert!(ready.fit_of(ask).is_some());
            ready.leave_ask(ask);
            assert_eq!(ready.fit_of(often), kept, "one that is used stays");
        }
        assert!(ready.fit_by_key.len() <= IDLE_FITS_MAX + FITS_ASKED, "{} fits", ready.fit_by_key.len());
        assert_eq!(ready.asks.ids(), [often]);
        assert_eq!(ready.fits.iter().flatten().count(), ready.fit_by_key.len());
    }
}
