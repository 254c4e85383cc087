//! Breaking the rules on purpose, to see that the invariants notice. Only tests ask for this.

use engine::Step;
use model::batch::{Batch, Keyspace};
use model::codec;
use model::id::{Attempt, Epoch, Incarnation, JobId, RunnerId};
use model::job::{AttemptRecord, Job, StateAt};
use model::key::{self, Day, KeyEntry, Made};
use model::message::{RunnerWord, Ticket, ToRunner};
use model::state::State;
use model::time::Millis;
use store::Store;

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
            Sabotage::AnswerFirst | Sabotage::DeafShards | Sabotage::ForgetTheLiving => return Ok(()),
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
            | Sabotage::ReuseKey => self.forge(sabotage)?,
        }
        self.after(100, Event::Sabotage);
        Ok(())
    }

    /// Commits, in the owner's name, what the owner never would.
    fn forge(&mut self, sabotage: Sabotage) -> Checked {
        for shard in 0..self.hosts.len() {
            let Some(batch) = self.forgery(sabotage, shard) else { continue };
            let Some((process, epoch, now)) = self.hosts[shard]
                .processes
                .last()
                .map(|process| (process.number, process.shard.epoch(), process.shard.now()))
            else {
                continue;
            };
            let id = self.shard_id(shard);
            trace!(self, "sabotage of shard {shard}: {sabotage:?}");
            if self.store.commit(id, epoch, &batch).is_ok() && sabotage != Sabotage::WriteBehind {
                let commit = Commit { shard: id, epoch, process, batch: &batch, now };
                let config = self.plan.config(id);
                self.ledger.observe(commit, &config, &self.policy, &mut self.coverage)?;
            }
        }
        Ok(())
    }

    fn forgery(&self, sabotage: Sabotage, shard: usize) -> Option<Batch> {
        let mine = |job: &Job| usize::from(self.plan.shards.owner(job.id.slot()).0) == shard;
        let jobs = || {
            self.ledger.jobs.values().filter(|known| !known.removed).map(|known| &known.record).filter(|job| mine(job))
        };
        let find = |state: State| jobs().find(|job| job.state == state).cloned();
        let mut batch = Batch::new();
        match sabotage {
            Sabotage::LoseJob => {
                let job = jobs().find(|job| !job.state.is_terminal())?;
                batch.delete(Keyspace::Live, &job.id.key());
            }
            Sabotage::ReviveCancelled => {
                let mut job = find(State::Cancelled)?;
                job.state = State::Scheduled;
                job.states.push(StateAt { state: State::Scheduled, at: job.since() });
                batch.delete(Keyspace::Done, &job.id.key());
                batch.put_with(Keyspace::Live, &job.id.key(), |buffer| job.encode_into(buffer));
            }
            Sabotage::ChangeResult => {
                let mut job = find(State::Succeeded)?;
                job.result = None;
                batch.put_with(Keyspace::Done, &job.id.key(), |buffer| job.encode_into(buffer));
            }
            Sabotage::RetryTooOften => {
                let mut job = find(State::Scheduled)?;
                job.retries = job.max_retries + 1;
                batch.put_with(Keyspace::Live, &job.id.key(), |buffer| job.encode_into(buffer));
            }
            Sabotage::StartEarly => forge_start(find(State::Blocked)?, &mut batch),
            Sabotage::StartUnapproved => forge_start(find(State::ApprovalRequired)?, &mut batch),
            Sabotage::Miscount => {
                let job = jobs().next()?;
                let bytes = self.store.get(self.shard_id(shard), Keyspace::Queues, &job.queue.key()).ok()??;
                let mut queue: model::queue::Queue = codec::decode(&bytes).ok()?;
                queue.counters.active += 1;
                batch.put_with(Keyspace::Queues, &queue.id.key(), |buffer| codec::encode_into(&queue, buffer));
            }
            Sabotage::MoveAttempt => {
                let mut job = find(State::Running)?;
                job.last_attempt_mut()?.runner = RunnerId(99);
                batch.put_with(Keyspace::Live, &job.id.key(), |buffer| job.encode_into(buffer));
            }
            Sabotage::WriteBehind => batch.put(Keyspace::Meta, b"forged", b"forged"),
            Sabotage::ReuseKey => {
                let job = jobs().find(|job| job.key.is_some() && !job.state.is_terminal())?;
                let entry = KeyEntry {
                    digest: job.digest,
                    at: job.created_at,
                    made: Made::Job { id: JobId(job.id.0 + 1), seq: job.seq },
                };
                let place = key::idempotency(Day::of(job.created_at), job.key?);
                batch.put_with(Keyspace::Keys, &place, |buffer| codec::encode_into(&entry, buffer));
            }
            Sabotage::RunDenied
            | Sabotage::IgnoreFence
            | Sabotage::AnswerFirst
            | Sabotage::DeafShards
            | Sabotage::ForgetTheLiving
            | Sabotage::StartTwice => return None,
        }
        Some(batch)
    }

    fn run_denied(&mut self) {
        let denied = self.ledger.jobs.values().find(|known| known.record.state == State::Denied);
        let Some(job) = denied.map(|known| known.record.id) else { return };
        let face = model::message::ShardFace { shard: self.plan.shards.owner(job.slot()), epoch: Epoch(u64::MAX) };
        let message = ToRunner::Run { ticket: Ticket { job, attempt: Attempt(1) }, spec: bytes::Bytes::new() };
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

fn forge_start(mut job: Job, batch: &mut Batch) {
    job.attempt = Attempt(1);
    let record = AttemptRecord::new(Attempt(1), RunnerId(1), Incarnation(1), Millis(1));
    job.attempts.push(AttemptRecord { ended_at: Some(Millis(1)), ..record });
    batch.put_with(Keyspace::Live, &job.id.key(), |buffer| job.encode_into(buffer));
}
