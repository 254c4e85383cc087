//! What operators say anew about topics, pools and tenants, done to all that waits.
//!
//! It is done for each runner and for each ask, not for each job; only the jobs of an ask that may now use other pools
//! are moved.

use std::sync::Arc;

use crate::placement::ask::AskId;
use crate::placement::fit::FitId;
use crate::placement::staff::{RunnerIndex, Traits};
use crate::ready::{Gate, Ready, TenantNumber};
use crate::setup::Setup;

impl Ready {
    /// Returns the tenants whose limits are others now.
    pub(crate) fn change_setup(&mut self, setup: Arc<Setup>) -> Vec<TenantNumber> {
        let mut changed = Vec::new();
        let old = std::mem::replace(&mut self.setup, setup);
        for tenant in self.tenants.refresh(&self.setup.clone()) {
            self.unpark(&Gate::Tenant(tenant));
            changed.push(tenant);
        }
        if old.pools != self.setup.pools {
            self.reread_runners();
        }
        if old.topics != self.setup.topics || old.other_topics != self.setup.other_topics {
            for ask in self.asks.ids() {
                self.reread_ask(ask);
            }
        }
        changed
    }

    /// Pools give other capabilities to their runners, or are spared now or no more.
    fn reread_runners(&mut self) {
        let here = |index: &RunnerIndex| self.member(*index).is_some_and(|member| member.is_here);
        let here: Vec<RunnerIndex> = (0..self.staff.len() as u32).map(RunnerIndex).filter(here).collect();
        for index in here {
            self.runner_goes(index);
            let profile = self.staff[index.0 as usize].traits.profile().clone();
            let traits = Traits::new(profile, &self.setup);
            self.runner_comes(index, traits);
        }
    }

    /// The topic of an ask may be given to other pools now.
    fn reread_ask(&mut self, id: AskId) {
        let Some(ask) = self.asks.get_mut(id) else { return };
        let Some((old, generation)) = ask.fit.take() else { return };
        let pools = ask.key.pools(&self.setup);
        let is_waiting = ask.waiting > 0;
        if !is_waiting || self.fit(old).is_some_and(|fit| fit.key.crew.pools == pools) {
            // Where it stood is right, or is looked up again when it is needed.
            if let Some(ask) = self.asks.get_mut(id).filter(|_| is_waiting) {
                ask.fit = Some((old, generation));
            }
            return;
        }
        self.move_ask(id, old);
    }

    fn move_ask(&mut self, id: AskId, old: FitId) {
        let Some(new) = self.fit_of(id) else { return };
        for class in 0..3 {
            let Some(fit) = self.fits.get_mut(old.0 as usize).and_then(Option::as_mut) else { return };
            for (line, jobs) in fit.classes[class].take_lines(id, &mut self.tenants) {
                if let Some(fit) = self.fits.get_mut(old.0 as usize).and_then(Option::as_mut) {
                    fit.waiting -= jobs.len();
                }
                for waiting in jobs {
                    self.put(new, class, line, waiting);
                }
            }
        }
        if self.fit(new).is_some_and(|fit| fit.unplaced().is_some()) {
            self.begin_arming(new);
        }
    }
}
