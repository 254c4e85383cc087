//! Rolls the ledger back to the commits that a failover of the store has kept.
//!
//! The ledger of the kept commits is built anew from their batches, so it forgets exactly what was lost. Requests of
//! clients and the epochs of owners are not part of the store: they stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Settings;
use model::batch::Batch;
use model::id::{Attempt, Epoch, JobId, ShardId};
use model::message::AttemptRef;
use model::time::Millis;
use store::Lost;

use super::audit::AuditLogs;
use super::workflows::Workflows;
use super::{Commit, Ledger};
use crate::invariants::DispatchSnapshot;

/// A landed commit, to be replayed.
#[derive(Debug, Clone)]
pub struct Landed {
    pub shard: ShardId,
    epoch: Epoch,
    process: u64,
    batch: Batch,
    now: Millis,
    settings: Vec<Arc<Settings>>,
    dispatched: BTreeMap<AttemptRef, DispatchSnapshot>,
}

impl Landed {
    fn of(commit: Commit<'_>) -> Self {
        let Commit { shard, epoch, process, batch, now, settings, dispatched } = commit;
        Self {
            shard,
            epoch,
            process,
            batch: batch.clone(),
            now,
            settings: settings.to_vec(),
            dispatched: dispatched.clone(),
        }
    }

    pub fn commit(&self) -> Commit<'_> {
        let Self { shard, epoch, process, batch, now, settings, dispatched } = self;
        Commit {
            shard: *shard,
            epoch: *epoch,
            process: *process,
            batch,
            now: *now,
            settings: &settings[..],
            dispatched,
        }
    }
}

/// What failovers have lost.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// All commits that are kept, if the store may lose some.
    landed: Option<Vec<Landed>>,
    /// Attempts whose dispatch was lost. The runner may know them; their numbers are used again.
    pub dispatches: BTreeSet<AttemptRef>,
    /// Attempts in flight on record whose later history was lost: they may have ended on their runner.
    pub ends: BTreeSet<AttemptRef>,
    pub jobs: BTreeSet<JobId>,
    /// Shards have lost different parts of their common past.
    pub is_uneven: bool,
}

impl Losses {
    pub fn record(&mut self, commit: Commit<'_>) {
        if let Some(landed) = &mut self.landed {
            landed.push(Landed::of(commit));
        }
    }
}

impl Ledger {
    /// A ledger of a store that may lose commits.
    pub fn of_lossy_store(self) -> Self {
        Self { losses: Losses { landed: Some(Vec::new()), ..self.losses }, ..self }
    }

    /// Starts over without the lost commits, which are given by their shards, the newest first. Also returns the kept
    /// commits, for [`Ledger::apply`].
    pub fn roll_back(&self, lost: Lost, commits: &[ShardId], generation: u64) -> (Self, Vec<Landed>) {
        let mut losses = self.losses.clone();
        let mut kept = losses.landed.replace(Vec::new()).unwrap_or_default();
        for shard in commits {
            if let Some(index) = kept.iter().rposition(|landed| landed.shard == *shard) {
                kept.remove(index);
            }
        }
        losses.is_uneven |= matches!(lost, Lost::Shard(_)) && !commits.is_empty();
        // Nobody owns a shard until it is opened in the new generation.
        let closed = Epoch(Epoch(0).next(generation).0 - 1);
        let ledger = Self {
            losses,
            clocks_agree: self.clocks_agree,
            removal_requested: self.removal_requested.clone(),
            approvals: self.approvals.clone(),
            owners: self.owners.clone(),
            newest_epochs: self.newest_epochs.keys().map(|shard| (*shard, closed)).collect(),
            audit: AuditLogs::of_requests(&self.audit),
            workflows: Workflows::of_requests(&self.workflows),
            ..Self::default()
        };
        (ledger, kept)
    }

    /// Notes the difference to the ledger before the failover.
    pub fn compare_with(&mut self, before: &Self) {
        for (id, known) in &before.jobs {
            let lost = &known.record;
            let kept = self.jobs.get(id).map(|known| &known.record);
            let first = kept.map_or(Attempt::NONE, |kept| kept.attempt).next();
            let attempts = (first.0..=lost.attempt.0).map(|attempt| AttemptRef { job: *id, attempt: Attempt(attempt) });
            self.losses.dispatches.extend(attempts);
            match kept {
                None => drop(self.losses.jobs.insert(*id)),
                Some(kept) if kept.state.is_on_runner() && kept != lost => {
                    self.losses.ends.insert(AttemptRef { job: *id, attempt: kept.attempt });
                }
                Some(_) => {}
            }
        }
    }
}
