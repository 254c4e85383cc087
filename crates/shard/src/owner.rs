//! The owner of a shard: its memory, its fencing token, and the round that is under way.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Config, Input, Settings, Shard, Step};
use model::id::Epoch;
use model::job::{End, Job, Outcome, SpilledResult};
use model::json::Json;
use model::message::{AttemptRef, FromRunner, RunnerFrame, RunnerMessage};
use model::time::{Millis, Now};
use store::{Durability, FencingToken, ShardOwner, Store};

use crate::rehydrate::{self, Rehydrated};
use crate::{Error, PlanCache, spill};

/// An owner on a store that may lose commits confirms at least this often that it is current. Otherwise an idle one would
/// not notice that its earlier commits are lost.
const CONFIRM_INTERVAL: Millis = Millis::from_secs(5);

/// What an owner needs from its node to take the end of an attempt.
pub trait Outcomes {
    /// Adds the decision of the metadata check to the outcome of a successful attempt.
    fn check_metadata(&mut self, job: &Job, attempt_ref: AttemptRef, outcome: &mut Outcome);

    /// Stores the large result of an attempt in the background. Its end waits for [`Owner::finish_spill`].
    fn spill(&mut self, epoch: Epoch, attempt_ref: AttemptRef, result: &Json);
}

/// Parameters of an owner.
#[derive(Debug, Clone)]
pub struct Options {
    pub owner: ShardOwner,
    pub config: Config,
    pub settings: Arc<Settings>,
    /// Limit of bytes to write per round. The input that reaches it may write [`engine::INPUT_BYTES_MAX`] more.
    pub round_bytes_max: usize,
    /// Larger results of workflow tasks are stored as blobs.
    pub result_bytes_max: usize,
}

/// The owner of a shard under one epoch.
#[derive(Debug)]
pub struct Owner {
    shard: Shard,
    step: Step,
    token: FencingToken,
    round_bytes_max: usize,
    result_bytes_max: usize,
    /// The shard is not resumed yet. Inputs wait.
    is_resuming: bool,
    /// Runner messages that did not fit into their round.
    messages: VecDeque<FromRunner>,
    /// The large result of the first of them is being stored; messages are applied in order.
    is_spilling: bool,
    /// When the ownership has to be confirmed, on the steady clock. Absent if the store loses nothing.
    confirm_at: Option<Millis>,
    /// Start of this round, on the steady clock.
    now: Millis,
    /// A read from the store failed: the shard cannot go on without its answer.
    read_failure: Option<String>,
    stale_replies: u64,
    unreadable: u32,
}

impl Owner {
    /// Takes ownership of a shard and rebuilds its memory from records.
    ///
    /// # Panics
    /// If the store does not take every commit that may come of a round.
    pub fn open(store: &dyn Store, plans: &dyn PlanCache, options: Options, now: Now) -> Result<Self, Error> {
        let Options { owner, config, settings, round_bytes_max, result_bytes_max } = options;
        let largest = round_bytes_max + engine::INPUT_BYTES_MAX;
        assert!(largest <= store.commit_bytes_max(), "the store must take every commit of a shard");
        let token = store.take_over(config.shard, owner)?;
        let Rehydrated { shard, unreadable } = rehydrate::rehydrate(store, plans, &token, config, settings, now)?;
        Ok(Self {
            shard,
            step: Step::new(),
            token,
            round_bytes_max,
            result_bytes_max,
            is_resuming: true,
            messages: VecDeque::new(),
            is_spilling: false,
            confirm_at: (store.durability() == Durability::MayLoseSuffix).then(|| now.steady + CONFIRM_INTERVAL),
            now: now.steady,
            read_failure: None,
            stale_replies: 0,
            unreadable,
        })
    }

    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    pub fn epoch(&self) -> Epoch {
        self.token.epoch
    }

    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// Whether the shard is still being resumed: inputs have to wait for a later round.
    pub fn is_resuming(&self) -> bool {
        self.is_resuming
    }

    /// Number of workflows and schedules that could not be read. They are left alone.
    pub fn unreadable(&self) -> u32 {
        self.unreadable
    }

    /// Replies to earlier owners, dropped since the last call.
    pub fn take_stale_replies(&mut self) -> u64 {
        std::mem::take(&mut self.stale_replies)
    }

    /// Whether messages of runners wait for a later round.
    pub fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// How long a node may sleep without an input. 0: there is work left.
    pub fn idle_for(&self, now: Now) -> Millis {
        let has_work = self.is_resuming || (self.has_messages() && !self.is_spilling) || !self.step.batch.is_empty();
        if has_work {
            return Millis(0);
        }
        let confirm_in = self.confirm_at.map(|at| at.saturating_sub(now.steady));
        confirm_in.into_iter().fold(self.shard.tick_in(now), Millis::min)
    }

    /// Whether this round has reached its limit of bytes.
    pub fn is_full(&self) -> bool {
        self.shard.pending_bytes(&self.step) >= self.round_bytes_max
    }

    /// Begins a round with the work left from earlier ones, so that new inputs cannot starve it.
    pub fn begin_round(&mut self, now: Now, outcomes: &mut dyn Outcomes) {
        self.now = now.steady;
        if self.is_resuming {
            self.is_resuming = !self.shard.resume(now, &mut self.step);
            return;
        }
        if self.shard.tick_in(now) == Millis(0) {
            self.handle(now, Input::Tick);
        }
        self.handle_messages(now, outcomes);
    }

    /// Handles an input that is no reply.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.shard.handle(now, input, &mut self.step);
    }

    /// Handles the answer to an effect of the owner under `epoch`. One for an earlier owner is dropped and counted.
    pub fn reply(&mut self, now: Now, epoch: Epoch, input: Input) {
        if self.is_current(epoch) {
            self.handle(now, input);
        }
    }

    /// A read of the owner under `epoch` failed: that owner ends with this round.
    pub fn fail_read(&mut self, epoch: Epoch, reason: String) {
        if self.is_current(epoch) {
            self.read_failure = Some(reason);
        }
    }

    /// Receives the messages of a runner, in order, as many as fit into this round.
    pub fn receive(&mut self, now: Now, frame: RunnerFrame, outcomes: &mut dyn Outcomes) {
        self.handle(now, Input::RunnerHeader(frame.header));
        self.messages.extend(frame.messages);
        self.handle_messages(now, outcomes);
    }

    /// The large result of an attempt was stored, or could not be.
    pub fn finish_spill(
        &mut self,
        now: Now,
        epoch: Epoch,
        of: AttemptRef,
        spilled: Result<SpilledResult, String>,
        outcomes: &mut dyn Outcomes,
    ) {
        if !self.is_current(epoch) {
            return;
        }
        let Some(FromRunner { message: RunnerMessage::Ended { attempt_ref, outcome, .. }, .. }) =
            self.messages.front_mut().filter(|_| self.is_spilling)
        else {
            return self.stale_replies += 1;
        };
        if *attempt_ref != of {
            return self.stale_replies += 1;
        }
        self.is_spilling = false;
        spill::replace(outcome, spilled);
        self.handle_messages(now, outcomes);
    }

    fn is_current(&mut self, epoch: Epoch) -> bool {
        let is_current = epoch == self.token.epoch;
        self.stale_replies += u64::from(!is_current);
        is_current
    }

    fn handle_messages(&mut self, now: Now, outcomes: &mut dyn Outcomes) {
        while !self.is_full()
            && !self.must_spill(outcomes)
            && let Some(mut message) = self.messages.pop_front()
        {
            self.check_metadata(&mut message, outcomes);
            self.handle(now, Input::Runner(message));
        }
    }

    /// Whether the next message waits for its large result to be stored.
    fn must_spill(&mut self, outcomes: &mut dyn Outcomes) -> bool {
        if !self.is_spilling
            && let Some(FromRunner { message: RunnerMessage::Ended { attempt_ref, outcome, .. }, .. }) =
                self.messages.front()
            && let Some(job) = self.shard.job(attempt_ref.job)
            && let Some(result) = spill::too_large(job, outcome, self.result_bytes_max)
        {
            outcomes.spill(self.token.epoch, *attempt_ref, result);
            self.is_spilling = true;
        }
        self.is_spilling
    }

    fn check_metadata(&self, message: &mut FromRunner, outcomes: &mut dyn Outcomes) {
        if let RunnerMessage::Ended { attempt_ref, outcome, .. } = &mut message.message
            && outcome.end == End::Succeeded
            && let Some(job) = self.shard.job(attempt_ref.job)
        {
            outcomes.check_metadata(job, *attempt_ref, outcome);
        }
    }

    /// Encodes the changes of the round into its batch.
    pub fn flush(&mut self) {
        self.shard.flush(&mut self.step);
    }

    /// Whether the flushed round has anything to write.
    pub fn has_writes(&self) -> bool {
        !self.step.batch.is_empty()
    }

    /// Makes the flushed round durable. From then on its effects may be performed.
    pub fn commit(&mut self, store: &dyn Store) -> Result<(), Error> {
        if let Some(reason) = self.read_failure.take() {
            return Err(Error::Read { shard: self.token.shard.0, reason });
        }
        if self.has_writes() {
            store.commit(&mut self.token, &self.step.batch)?;
        } else if !self.step.effects.is_empty() || self.confirm_at.is_some_and(|at| at <= self.now) {
            // Whatever the effects say is only true if nobody else owns the shard.
            store.confirm(&self.token)?;
        } else {
            return Ok(());
        }
        self.confirm_at = self.confirm_at.map(|_| self.now + CONFIRM_INTERVAL);
        Ok(())
    }

    /// The round: its batch, effects and what ended in it.
    pub fn step(&mut self) -> &mut Step {
        &mut self.step
    }

    /// Ends the round after its effects were performed.
    pub fn end_round(&mut self) {
        self.step.clear();
    }
}
