//! A runner's link to one shard: attempts in flight, and the outbox of messages not yet committed.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use model::id::{Epoch, Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::message::{AttemptRef, Capacity, FromRunner, Profile, RunnerMessage};
use model::spec::ExecutorKind;
use model::time::Millis;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Attempt in flight, with what is needed to stop it.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// Waits for the end of its delay.
    Echo {
        due: Instant,
    },
    /// `stop` is absent once the stop has been sent.
    Process {
        stop: Option<oneshot::Sender<()>>,
    },
    Wasm {
        stop: wasm::Stop,
    },
}

impl InFlight {
    fn executor(&self) -> ExecutorKind {
        match self {
            Self::Echo { .. } => ExecutorKind::Echo,
            Self::Process { .. } => ExecutorKind::Process,
            Self::Wasm { .. } => ExecutorKind::Wasm,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    runner: RunnerId,
    incarnation: Incarnation,
    capacity: Capacity,
    profile: Arc<Profile>,
    /// Newest epoch of the shard; messages of older ones are ignored.
    epoch: Epoch,
    next_sequence: u64,
    /// Messages not yet committed by the shard.
    outbox: VecDeque<FromRunner>,
    /// Attempts whose end is in the outbox: a repeated run message for them is ignored.
    ended: HashSet<AttemptRef, foldhash::fast::FixedState>,
    in_flight: HashMap<AttemptRef, InFlight, foldhash::fast::FixedState>,
    /// Attempts in flight per executor.
    counts: [u32; ExecutorKind::ALL.len()],
    /// Messages to deliver at the end of this round.
    pub unsent: Vec<FromRunner>,
}

impl Link {
    /// `adopted` are processes of an earlier incarnation that are still in flight.
    pub fn new(
        runner: RunnerId,
        incarnation: Incarnation,
        capacity: Capacity,
        profile: Arc<Profile>,
        adopted: impl IntoIterator<Item = (AttemptRef, oneshot::Sender<()>)>,
    ) -> Self {
        let mut link = Self {
            runner,
            incarnation,
            capacity,
            profile,
            epoch: Epoch(0),
            next_sequence: 1,
            outbox: VecDeque::new(),
            ended: HashSet::default(),
            in_flight: HashMap::default(),
            counts: [0; ExecutorKind::ALL.len()],
            unsent: Vec::new(),
        };
        for (attempt_ref, stop) in adopted {
            link.add(attempt_ref, InFlight::Process { stop: Some(stop) });
        }
        link.send_register(0);
        link
    }

    /// Whether to accept a message from an owner with this epoch. Records a newer epoch.
    pub fn accepts(&mut self, epoch: Epoch) -> bool {
        self.epoch = self.epoch.max(epoch);
        epoch == self.epoch
    }

    pub fn is_known(&self, attempt_ref: AttemptRef) -> bool {
        self.in_flight.contains_key(&attempt_ref) || self.ended.contains(&attempt_ref)
    }

    pub fn is_in_flight(&self, attempt_ref: AttemptRef) -> bool {
        self.in_flight.contains_key(&attempt_ref)
    }

    /// Echo jobs without a delay need no slot; delayed ones do.
    pub fn has_free_slot(&self, executor: ExecutorKind) -> bool {
        self.counts[executor as usize] < self.capacity.of(executor)
    }

    pub fn add(&mut self, attempt_ref: AttemptRef, attempt: InFlight) {
        self.counts[attempt.executor() as usize] += 1;
        self.in_flight.insert(attempt_ref, attempt);
    }

    /// Registers again if the capacity has changed.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        if self.capacity != capacity {
            self.capacity = capacity;
            self.send_register(0);
        }
    }

    /// The handle to stop an attempt. The attempt stays in flight until its end is sent.
    pub fn take_stop(&mut self, attempt_ref: AttemptRef) -> Option<InFlight> {
        match self.in_flight.get_mut(&attempt_ref)? {
            InFlight::Echo { due } => Some(InFlight::Echo { due: *due }),
            InFlight::Process { stop } => Some(InFlight::Process { stop: stop.take() }),
            InFlight::Wasm { stop } => Some(InFlight::Wasm { stop: stop.clone() }),
        }
    }

    /// Attempts in flight of the wanted executors.
    pub fn in_flight_of(&self, wanted: impl Fn(ExecutorKind) -> bool) -> Vec<AttemptRef> {
        self.in_flight
            .iter()
            .filter(|(_, attempt)| wanted(attempt.executor()))
            .map(|(attempt_ref, _)| *attempt_ref)
            .collect()
    }

    /// Sets the capacity to zero.
    pub fn close(&mut self) {
        self.set_capacity(Capacity::default());
    }

    /// The attempt has a slot; its program is being set up.
    pub fn send_accepted(&mut self, attempt_ref: AttemptRef, at: Millis) {
        self.send(RunnerMessage::Accepted { attempt_ref, at });
    }

    /// The attempt's program was started.
    pub fn send_started(&mut self, attempt_ref: AttemptRef, at: Millis) {
        self.send(RunnerMessage::Started { attempt_ref, at });
    }

    pub fn send_ended(&mut self, attempt_ref: AttemptRef, at: Millis, outcome: Outcome) {
        if let Some(attempt) = self.in_flight.remove(&attempt_ref) {
            self.counts[attempt.executor() as usize] -= 1;
        }
        // An attempt that found no free slot may be dispatched again.
        if outcome.end != End::Busy {
            self.ended.insert(attempt_ref);
        }
        self.send(RunnerMessage::Ended { attempt_ref, at, outcome: Box::new(outcome) });
    }

    /// Answers an inventory request, or registers unasked (request 0).
    pub fn send_register(&mut self, request: u64) {
        let mut in_flight: Vec<AttemptRef> = self.in_flight.keys().copied().collect();
        in_flight.sort_unstable();
        let oldest_kept = self.outbox.front().map_or(self.next_sequence, |message| message.sequence);
        let (capacity, profile) = (self.capacity, self.profile.clone());
        self.send(RunnerMessage::Register { capacity, profile, in_flight, request, oldest_kept });
    }

    /// Sends the whole outbox again.
    pub fn retransmit(&mut self) {
        self.unsent = self.outbox.iter().cloned().collect();
    }

    /// Removes messages up to `sequence`, which the shard has committed. Returns the attempts whose end is among them.
    pub fn acknowledge(&mut self, sequence: u64) -> Vec<AttemptRef> {
        let mut committed = Vec::new();
        while let Some(message) = self.outbox.front().filter(|message| message.sequence <= sequence) {
            if let RunnerMessage::Ended { attempt_ref, .. } = message.message {
                self.ended.remove(&attempt_ref);
                committed.push(attempt_ref);
            }
            self.outbox.pop_front();
        }
        committed
    }

    fn send(&mut self, message: RunnerMessage) {
        let message =
            FromRunner { runner: self.runner, incarnation: self.incarnation, sequence: self.next_sequence, message };
        self.next_sequence += 1;
        self.outbox.push_back(message.clone());
        self.unsent.push(message);
    }
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, JobId};

    use super::*;

    fn link() -> Link {
        Link::new(RunnerId(1), Incarnation(1), Capacity { process: 1, echo: 1, wasm: 0 }, Arc::default(), [])
    }

    fn attempt_ref(job: u64) -> AttemptRef {
        AttemptRef { job: JobId(job), attempt: Attempt(1) }
    }

    #[test]
    fn a_message_stays_in_the_outbox_until_it_is_committed() {
        let mut link = link();
        link.send_ended(attempt_ref(1), Millis(0), Outcome::of(End::Succeeded));
        assert!(link.is_known(attempt_ref(1)));
        link.unsent.clear();
        link.retransmit();
        assert_eq!(link.unsent.iter().map(|message| message.sequence).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(link.acknowledge(2), [attempt_ref(1)]);
        link.retransmit();
        assert!(link.unsent.is_empty());
        assert!(!link.is_known(attempt_ref(1)));
    }

    #[test]
    fn an_inventory_states_the_oldest_message_in_the_outbox() {
        let mut link = link();
        link.acknowledge(1);
        link.send_started(attempt_ref(1), Millis(0));
        link.send_register(9);
        let RunnerMessage::Register { oldest_kept, request, .. } = &link.unsent.last().unwrap().message else {
            panic!()
        };
        assert_eq!((*oldest_kept, *request), (2, 9));
    }

    #[test]
    fn messages_of_an_older_epoch_are_rejected() {
        let mut link = link();
        assert!(link.accepts(Epoch(2)));
        assert!(!link.accepts(Epoch(1)));
        assert!(link.accepts(Epoch(3)));
    }

    #[test]
    fn slots_are_counted_per_executor() {
        let mut link = link();
        link.add(attempt_ref(1), InFlight::Process { stop: None });
        assert!(!link.has_free_slot(ExecutorKind::Process));
    }
}
