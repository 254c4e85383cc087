//! One runner's conversation with one shard: what it has in hand, and what it has said.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use model::id::{Epoch, Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::message::{Capacity, FromRunner, Profile, RunnerWord, Ticket};
use model::spec::Lane;
use model::time::Millis;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// An attempt in hand.
#[derive(Debug)]
pub(crate) enum Held {
    /// It waits out its delay.
    Echo {
        due: Instant,
    },
    /// The sender tells it to stop; gone once told.
    Process {
        stop: Option<oneshot::Sender<()>>,
    },
    Wasm {
        stop: wasm::Stop,
    },
}

impl Held {
    fn lane(&self) -> Lane {
        match self {
            Self::Echo { .. } => Lane::Echo,
            Self::Process { .. } => Lane::Process,
            Self::Wasm { .. } => Lane::Wasm,
        }
    }
}

/// The state of the conversation.
#[derive(Debug)]
pub(crate) struct Link {
    runner: RunnerId,
    incarnation: Incarnation,
    capacity: Capacity,
    profile: Arc<Profile>,
    /// The shard's newest owner; words of an older one are ignored.
    epoch: Epoch,
    next_sequence: u64,
    /// Said and not known to be committed.
    outbox: VecDeque<FromRunner>,
    /// Attempts whose end is in the outbox: asked to run one of them again, the runner need not.
    ended: HashSet<Ticket, foldhash::fast::FixedState>,
    held: HashMap<Ticket, Held, foldhash::fast::FixedState>,
    /// How many of them are of each kind.
    counts: [u32; Lane::ALL.len()],
    /// To be delivered at the end of this round.
    pub unsent: Vec<FromRunner>,
}

impl Link {
    /// `adopted` are processes of an earlier incarnation that are still there.
    pub fn new(
        runner: RunnerId,
        incarnation: Incarnation,
        capacity: Capacity,
        profile: Arc<Profile>,
        adopted: impl IntoIterator<Item = (Ticket, oneshot::Sender<()>)>,
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
            held: HashMap::default(),
            counts: [0; Lane::ALL.len()],
            unsent: Vec::new(),
        };
        for (ticket, stop) in adopted {
            link.hold(ticket, Held::Process { stop: Some(stop) });
        }
        link.say_here(0);
        link
    }

    /// Whether a message of an owner with this epoch counts.
    pub fn accepts(&mut self, epoch: Epoch) -> bool {
        self.epoch = self.epoch.max(epoch);
        epoch == self.epoch
    }

    pub fn knows(&self, ticket: Ticket) -> bool {
        self.held.contains_key(&ticket) || self.ended.contains(&ticket)
    }

    pub fn holds(&self, ticket: Ticket) -> bool {
        self.held.contains_key(&ticket)
    }

    /// Echo jobs that end at once take no room; those that wait do.
    pub fn has_room(&self, lane: Lane) -> bool {
        self.counts[lane as usize] < self.capacity.of(lane)
    }

    pub fn hold(&mut self, ticket: Ticket, held: Held) {
        self.counts[held.lane() as usize] += 1;
        self.held.insert(ticket, held);
    }

    /// Says how much room there is, if that has changed.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        if self.capacity != capacity {
            self.capacity = capacity;
            self.say_here(0);
        }
    }

    /// What it takes to stop an attempt; it stays in hand until its end is said.
    pub fn take_stop(&mut self, ticket: Ticket) -> Option<Held> {
        match self.held.get_mut(&ticket)? {
            Held::Echo { due } => Some(Held::Echo { due: *due }),
            Held::Process { stop } => Some(Held::Process { stop: stop.take() }),
            Held::Wasm { stop } => Some(Held::Wasm { stop: stop.clone() }),
        }
    }

    /// Everything in hand of these kinds.
    pub fn holding(&self, wanted: impl Fn(Lane) -> bool) -> Vec<Ticket> {
        self.held.iter().filter(|(_, held)| wanted(held.lane())).map(|(ticket, _)| *ticket).collect()
    }

    /// Takes nothing more, and says so.
    pub fn close(&mut self) {
        self.set_capacity(Capacity::default());
    }

    pub fn say_started(&mut self, ticket: Ticket, at: Millis) {
        self.say(RunnerWord::Started { ticket, at });
    }

    pub fn say_ended(&mut self, ticket: Ticket, at: Millis, outcome: Outcome) {
        if let Some(held) = self.held.remove(&ticket) {
            self.counts[held.lane() as usize] -= 1;
        }
        // A refusal for lack of room may be followed by the same ticket when there is some.
        if outcome.end != End::Busy {
            self.ended.insert(ticket);
        }
        self.say(RunnerWord::Ended { ticket, at, outcome: Box::new(outcome) });
    }

    /// Answers an inventory question, or says hello.
    pub fn say_here(&mut self, question: u64) {
        let mut holding: Vec<Ticket> = self.held.keys().copied().collect();
        holding.sort_unstable();
        let oldest_kept = self.outbox.front().map_or(self.next_sequence, |word| word.sequence);
        let (capacity, profile) = (self.capacity, self.profile.clone());
        self.say(RunnerWord::Here { capacity, profile, holding, question, oldest_kept });
    }

    /// Says everything again that is not known to be committed.
    pub fn repeat(&mut self) {
        self.unsent = self.outbox.iter().cloned().collect();
    }

    /// The shard has committed everything up to `sequence`. Returns the attempts whose end is thereby safe.
    pub fn forget(&mut self, sequence: u64) -> Vec<Ticket> {
        let mut safe = Vec::new();
        while let Some(word) = self.outbox.front().filter(|word| word.sequence <= sequence) {
            if let RunnerWord::Ended { ticket, .. } = word.word {
                self.ended.remove(&ticket);
                safe.push(ticket);
            }
            self.outbox.pop_front();
        }
        safe
    }

    fn say(&mut self, word: RunnerWord) {
        let word =
            FromRunner { runner: self.runner, incarnation: self.incarnation, sequence: self.next_sequence, word };
        self.next_sequence += 1;
        self.outbox.push_back(word.clone());
        self.unsent.push(word);
    }
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, JobId};

    use super::*;

    fn link() -> Link {
        Link::new(RunnerId(1), Incarnation(1), Capacity { process: 1, echo: 1, wasm: 0 }, Arc::default(), [])
    }

    fn ticket(job: u64) -> Ticket {
        Ticket { job: JobId(job), attempt: Attempt(1) }
    }

    #[test]
    fn a_word_is_kept_until_it_is_committed() {
        let mut link = link();
        link.say_ended(ticket(1), Millis(0), Outcome::of(End::Succeeded));
        assert!(link.knows(ticket(1)));
        link.unsent.clear();
        link.repeat();
        assert_eq!(link.unsent.iter().map(|word| word.sequence).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(link.forget(2), [ticket(1)]);
        link.repeat();
        assert!(link.unsent.is_empty());
        assert!(!link.knows(ticket(1)));
    }

    #[test]
    fn an_inventory_says_what_can_still_be_repeated() {
        let mut link = link();
        link.forget(1);
        link.say_started(ticket(1), Millis(0));
        link.say_here(9);
        let RunnerWord::Here { oldest_kept, question, .. } = &link.unsent.last().unwrap().word else { panic!() };
        assert_eq!((*oldest_kept, *question), (2, 9));
    }

    #[test]
    fn an_older_owner_of_the_shard_is_not_obeyed() {
        let mut link = link();
        assert!(link.accepts(Epoch(2)));
        assert!(!link.accepts(Epoch(1)));
        assert!(link.accepts(Epoch(3)));
    }

    #[test]
    fn room_is_counted_by_kind() {
        let mut link = link();
        link.hold(ticket(1), Held::Process { stop: None });
        assert!(!link.has_room(Lane::Process));
    }
}
