//! Changed settings for topics, pools and tenants, applied to runners and waiting jobs.
//!
//! The work is per runner and per requirement, not per job. Jobs are moved only if the pools of their requirement have
//! changed.

use std::sync::Arc;

use crate::anomaly::Anomaly;
use crate::placement::attributes::{EffectiveProfile, RunnerIndex};
use crate::placement::candidate_set::CandidateSetId;
use crate::placement::requirement::RequirementId;
use crate::placement::{LimitKey, Ready, TenantNumber};
use crate::settings::Settings;

impl Ready {
    /// Returns the tenants whose limits have changed.
    pub(crate) fn change_settings(&mut self, settings: Arc<Settings>) -> Vec<TenantNumber> {
        let mut changed = Vec::new();
        let old = std::mem::replace(&mut self.settings, settings);
        for tenant in self.tenants.refresh(&self.settings.clone()) {
            self.unpark(&LimitKey::Tenant(tenant));
            changed.push(tenant);
        }
        if old.pools != self.settings.pools {
            self.rematch_runners();
        }
        if old.topics != self.settings.topics || old.other_topics != self.settings.other_topics {
            for requirement in self.requirements.ids() {
                self.rematch_requirement(requirement);
            }
        }
        changed
    }

    /// Matches all runners again: the capabilities of pools or `spare_overloaded` have changed.
    fn rematch_runners(&mut self) {
        let is_connected = |index: &RunnerIndex| self.runner(*index).is_some_and(|runner| runner.is_connected);
        let connected: Vec<RunnerIndex> =
            (0..self.runners.len() as u32).map(RunnerIndex).filter(is_connected).collect();
        for index in connected {
            self.runner_leaves(index);
            let profile = self.runners[index.0 as usize].profile.profile().clone();
            let profile = EffectiveProfile::new(profile, &self.settings);
            self.runner_joins(index, profile);
        }
    }

    /// Matches a requirement again: its topic may be mapped to other pools now.
    fn rematch_requirement(&mut self, id: RequirementId) {
        let Some(requirement) = self.requirements.get_mut(id) else {
            return self.anomalies.note(Anomaly::MissingRequirement(id.index()), "rematch requirement");
        };
        let Some((old, generation)) = requirement.candidate_set.take() else { return };
        let pools = requirement.key.pools(&self.settings);
        let is_waiting = requirement.waiting > 0;
        if !is_waiting
            || self.candidate_set(old).is_some_and(|candidate_set| candidate_set.key.runner_class.pools == pools)
        {
            // The candidate set is still right, or is found again on the next use.
            if let Some(requirement) = self.requirements.get_mut(id).filter(|_| is_waiting) {
                requirement.candidate_set = Some((old, generation));
            }
            return;
        }
        self.move_requirement(id, old);
    }

    fn move_requirement(&mut self, id: RequirementId, old: CandidateSetId) {
        let Some(new) = self.candidate_set_of(id) else {
            return self.anomalies.note(Anomaly::MissingRequirement(id.index()), "move requirement");
        };
        for class in 0..3 {
            let Some(candidate_set) = self.candidate_sets.get_mut(old.0 as usize).and_then(Option::as_mut) else {
                return self.anomalies.note(Anomaly::MissingCandidateSet(old.0), "move requirement");
            };
            for (wait_queue, jobs) in candidate_set.classes[class].take_wait_queues(id, &mut self.tenants) {
                if let Some(candidate_set) = self.candidate_sets.get_mut(old.0 as usize).and_then(Option::as_mut) {
                    candidate_set.waiting -= jobs.len();
                }
                for waiting in jobs {
                    self.put(new, class, wait_queue, waiting);
                }
            }
        }
        if self.candidate_set(new).is_some_and(|candidate_set| candidate_set.unplaced().is_some()) {
            self.begin_arming_timers(new);
        }
    }
}
