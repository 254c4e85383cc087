//! Recounts the derived numbers of placement.

use model::job::Placement;

use super::Ready;
use super::candidate_set::Ineligible;
use super::matching::PlacementRunner;
use super::wait_queue::PriorityClass;
use crate::recount::{Miscount, check};

impl Ready {
    /// Compares every derived number of placement with a count over all runners.
    pub fn recount(&self) -> Result<(), Miscount> {
        let connected: Vec<&PlacementRunner> = self.runners.iter().filter(|runner| runner.is_connected).collect();
        check("connected runners", u64::from(self.connected), connected.len() as u64)?;
        for (number, candidate_set) in self.candidate_sets.iter().enumerate() {
            let Some(candidate_set) = candidate_set else { continue };
            let mut counted = Placement::default();
            let (mut excluded, mut candidates) = (0, 0);
            for runner in &connected {
                let availability = runner.availability[candidate_set.key.executor as usize];
                match candidate_set.key.check(&runner.profile) {
                    Err(Ineligible::OtherPool) => counted.other_pool += 1,
                    Err(Ineligible::LackCapability) => counted.lack_capability += 1,
                    Err(Ineligible::OtherLabels) => counted.other_labels += 1,
                    Ok(()) if availability.overloaded || availability.free == 0 => counted.busy += 1,
                    Ok(()) => counted.available += 1,
                }
                if candidate_set.key.check(&runner.profile).is_ok() {
                    let is_excluded = availability.overloaded
                        && candidate_set.key.excludes_overloaded(&runner.profile, &self.settings);
                    excluded += u64::from(is_excluded);
                    candidates += u64::from(availability.free > 0 && !is_excluded);
                }
            }
            check("runners excluded", u64::from(candidate_set.excluded), excluded)?;
            check("candidates", candidate_set.candidates.len() as u64, candidates)?;
            let waiting: usize = candidate_set.classes.iter().map(PriorityClass::len).sum();
            check("jobs waiting in a candidate set", candidate_set.waiting as u64, waiting as u64)?;
            if self.counts(candidate_set) != counted {
                let what = format!(
                    "runners of candidate set {number}: {:?} maintained, {counted:?} counted",
                    self.counts(candidate_set)
                );
                return Err(Miscount { what, kept: 0, counted: 0 });
            }
        }
        Ok(())
    }
}
