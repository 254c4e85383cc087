//! Breaking the rules on purpose, to see that the invariants notice. Only tests ask for this.

mod flows;
mod forgery;

use engine::Step;
use model::id::{Attempt, Epoch};
use model::message::{RunnerWord, Ticket, ToRunner};
use model::state::State;
use store::Store;

pub use flows::FlowSabotage;

use crate::host::Process;
use crate::invariants::Checked;
use crate::ledger::Commit;
use crate::runner::Held;
use crate::world::{Event, Inbound, World, trace};

/// A rule to break, once, in the middle of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The record of a live job disappears.
    LoseJob,
    /// A cancelled job runs again.
    ReviveCancelled,
    /// The result of an ended job changes.
    ChangeResult,
    /// More retries than there are.
    RetryTooOften,
    /// A delayed job starts before its time.
    StartEarly,
    /// A job starts that waits for an approval.
    StartUnapproved,
    /// A runner is told to run what was denied.
    RunDenied,
    /// A queue's counter is one off.
    Miscount,
    /// Something is written that no owner has committed.
    WriteBehind,
    /// The store lets a stale owner commit.
    IgnoreFence,
    /// Effects before the commit, which then fails.
    AnswerFirst,
    /// A second job under the same key.
    ReuseKey,
    /// Shards no longer hear what runners say.
    DeafShards,
    /// Shards do not hear what restarted runners have found alive.
    ForgetTheLiving,
    /// An attempt passes to a runner that never had it.
    MoveAttempt,
    /// A runner begins what it has begun before.
    StartTwice,
    /// A job starts on the word of rules that are no longer in force.
    StartUnderOldRules,
    /// A job is allowed although nobody has said so.
    InventDecision,
    /// A job is approved although nobody has said so.
    InventApproval,
    /// A job starts without the limits that the policy has put on it.
    LiftLimits,
    /// A runner is not told of them.
    ForgetLimits,
    /// More retries than the policy leaves the job.
    RetryBeyondLimits,
    /// A result can be seen that waits for its scan.
    ShowHeld,
    /// A result that nobody has released can be seen again.
    ReleaseUnasked,
    /// Something is said to have been found in a result.
    InventFinding,
    /// The original of a redacted result can be seen.
    ShowOriginal,
    /// Nobody looks at results.
    NeverScan,
    /// A dead letter disappears.
    LoseLetter,
    /// A job that has done its work has one.
    AddLetter,
    /// An entry of the audit log is written over.
    ChangeEntry,
    /// One is taken out.
    RemoveEntry,
    /// The shard forgets where its audit log ends.
    ForgetEnd,
    /// A job is cancelled, and nothing says by whom.
    CancelUnnoted,
    /// Nobody says what workflows wait for.
    NeverSignal,
    Flow(FlowSabotage),
}

impl World {
    /// Waits for something to break and breaks it.
    pub(crate) fn do_sabotage(&mut self) -> Checked {
        let Some(sabotage) = self.sabotage else { return Ok(()) };
        if self.is_healed() {
            return Ok(());
        }
        match sabotage {
            Sabotage::IgnoreFence => {
                self.after(0, Event::StartShard { shard: 0 });
                return Ok(());
            }
            Sabotage::AnswerFirst
            | Sabotage::DeafShards
            | Sabotage::ForgetTheLiving
            | Sabotage::ForgetLimits
            | Sabotage::NeverScan
            | Sabotage::NeverSignal => return Ok(()),
            Sabotage::StartTwice => self.start_twice(),
            Sabotage::RunDenied => self.run_denied(),
            Sabotage::LoseJob
            | Sabotage::ReviveCancelled
            | Sabotage::ChangeResult
            | Sabotage::RetryTooOften
            | Sabotage::StartEarly
            | Sabotage::StartUnapproved
            | Sabotage::Miscount
            | Sabotage::WriteBehind
            | Sabotage::MoveAttempt
            | Sabotage::ReuseKey
            | Sabotage::StartUnderOldRules
            | Sabotage::InventDecision
            | Sabotage::InventApproval
            | Sabotage::LiftLimits
            | Sabotage::RetryBeyondLimits
            | Sabotage::ShowHeld
            | Sabotage::ReleaseUnasked
            | Sabotage::InventFinding
            | Sabotage::ShowOriginal
            | Sabotage::LoseLetter
            | Sabotage::AddLetter
            | Sabotage::ChangeEntry
            | Sabotage::RemoveEntry
            | Sabotage::ForgetEnd
            | Sabotage::CancelUnnoted
            | Sabotage::Flow(_) => self.forge(sabotage)?,
        }
        self.after(100, Event::Sabotage);
        Ok(())
    }

    /// Commits, in the owner's name, what the owner never would.
    fn forge(&mut self, sabotage: Sabotage) -> Checked {
        for shard in 0..self.hosts.len() {
            let Some(batch) = self.forgery(sabotage, shard) else { continue };
            let Some(owner) = self.hosts[shard].processes.last() else { continue };
            let (process, epoch, now) = (owner.number, owner.shard.epoch(), owner.shard.now());
            let setups = owner.setups().to_vec();
            let id = self.shard_id(shard);
            trace!(self, "sabotage of shard {shard}: {sabotage:?}");
            if self.store.commit(id, epoch, &batch).is_ok() && sabotage != Sabotage::WriteBehind {
                let begun = std::collections::BTreeMap::new();
                let commit = Commit { shard: id, epoch, process, batch: &batch, now, setups: &setups, begun: &begun };
                self.observe(commit)?;
            }
        }
        Ok(())
    }

    fn run_denied(&mut self) {
        let denied = self.ledger.jobs.values().find(|known| known.record.state == State::Denied);
        let Some(job) = denied.map(|known| known.record.id) else { return };
        let face = model::message::ShardFace { shard: self.plan.shards.owner(job.slot()), epoch: Epoch(u64::MAX) };
        let message =
            ToRunner::Run { ticket: Ticket { job, attempt: Attempt(1) }, spec: bytes::Bytes::new(), constraints: None };
        for runner in 0..self.runners.len() {
            let incarnation = self.runners[runner].incarnation;
            self.after(0, Event::ToRunner { runner, incarnation, face, message: message.clone() });
        }
    }

    /// The epoch a commit is made with: with the fence down, always the newest.
    pub(crate) fn sabotaged_epoch(&self, shard: usize, epoch: Epoch) -> Epoch {
        match self.sabotage {
            Some(Sabotage::IgnoreFence) => self.ledger.newest_epoch(self.shard_id(shard)),
            Some(_) | None => epoch,
        }
    }

    /// A process is about to die without its commit.
    pub(crate) fn sabotage_before_commit(&mut self, shard: usize, process: &Process, step: &mut Step) -> Checked {
        if self.sabotage == Some(Sabotage::AnswerFirst) {
            for effect in step.effects.drain(..) {
                self.perform(shard, process, effect)?;
            }
        }
        Ok(())
    }

    /// Forgets that an attempt was begun, and begins it.
    fn start_twice(&mut self) {
        for index in 0..self.runners.len() {
            let incarnation = self.runners[index].incarnation;
            let links = &mut self.runners[index].links;
            let started = links.iter_mut().find_map(|(shard, link)| {
                let (ticket, held) = link.held.iter_mut().find(|(_, held)| **held == Held::Started)?;
                *held = Held::Waiting;
                Some((*shard, *ticket))
            });
            if let Some((shard, ticket)) = started {
                self.after(0, Event::AttemptStarts { runner: index, incarnation, shard, ticket });
            }
        }
    }

    /// What a runner is told.
    pub(crate) fn sabotaged_message(&self, mut message: ToRunner) -> ToRunner {
        if let (Some(Sabotage::ForgetLimits), ToRunner::Run { constraints, .. }) = (self.sabotage, &mut message) {
            *constraints = None;
        }
        message
    }

    /// Whether nobody looks at results.
    pub(crate) fn is_unscanned(&self) -> bool {
        self.sabotage == Some(Sabotage::NeverScan)
    }

    /// Whether nobody says at the end what workflows wait for.
    pub(crate) fn is_deaf_to_signals(&self) -> bool {
        self.sabotage == Some(Sabotage::NeverSignal)
    }

    /// What a shard hears of this, if anything.
    pub(crate) fn heard(&self, mut inbound: Inbound) -> Option<Inbound> {
        match (self.sabotage, &mut inbound) {
            (Some(Sabotage::DeafShards), Inbound::Words(_)) => return None,
            (Some(Sabotage::ForgetTheLiving), Inbound::Words(words)) => {
                for word in words.iter_mut().filter(|word| word.sequence == 1) {
                    if let RunnerWord::Here { holding, .. } = &mut word.word {
                        holding.clear();
                    }
                }
            }
            _ => {}
        }
        Some(inbound)
    }
}
