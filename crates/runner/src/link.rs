//! One runner's conversation with one shard: what it has in hand, and what it has said.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};
use model::id::{Epoch, Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::message::{Capacity, FromRunner, RunnerWord, Ticket};
use model::spec::Lane;
use model::time::Millis;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// An attempt in hand.
#[derive(Debug)]
pub(crate) enum Held {
    /// It waits out its delay.
    Echo { due: Instant },
    /// The sender tells it to stop; gone once told.
    Process { stop: Option<oneshot::Sender<()>> },
}

/// The state of the conversation.
#[derive(Debug)]
pub(crate) struct Link {
    runner: RunnerId,
    incarnation: Incarnation,
    capacity: Capacity,
    /// The shard's newest owner; words of an older one are ignored.
    epoch: Epoch,
    next_sequence: u64,
    /// Said and not known to be committed.
    outbox: VecDeque<FromRunner>,
    /// Attempts whose end is in the outbox: asked to run one of them again, the runner need not.
    ended: HashSet<Ticket, foldhash::fast::FixedState>,
    held: HashMap<Ticket, Held, foldhash::fast::FixedState>,
    processes: usize,
    /// To be delivered at the end of this round.
    pub unsent: Vec<FromRunner>,
}

impl Link {
    pub fn new(runner: RunnerId, incarnation: Incarnation, capacity: Capacity) -> Self {
        let mut link = Self {
            runner,
            incarnation,
            capacity,
            epoch: Epoch(0),
            next_sequence: 1,
            outbox: VecDeque::new(),
            ended: HashSet::default(),
            held: HashMap::default(),
            processes: 0,
            unsent: Vec::new(),
        };
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

    pub fn has_room(&self, lane: Lane) -> bool {
        match lane {
            // Echo jobs end at once: only those that wait take room.
            Lane::Echo => self.held.len() - self.processes < self.capacity.echo as usize,
            Lane::Process => self.processes < self.capacity.process as usize,
        }
    }

    pub fn hold(&mut self, ticket: Ticket, held: Held) {
        self.processes += usize::from(matches!(held, Held::Process { .. }));
        self.held.insert(ticket, held);
    }

    /// What it takes to stop an attempt; it stays in hand until its end is said.
    pub fn take_stop(&mut self, ticket: Ticket) -> Option<Held> {
        match self.held.get_mut(&ticket)? {
            Held::Echo { due } => Some(Held::Echo { due: *due }),
            Held::Process { stop } => Some(Held::Process { stop: stop.take() }),
        }
    }

    /// The senders that stop all processes in hand.
    pub fn take_all_stops(&mut self) -> impl Iterator<Item = oneshot::Sender<()>> {
        self.held.values_mut().filter_map(|held| match held {
            Held::Echo { .. } => None,
            Held::Process { stop } => stop.take(),
        })
    }

    /// Takes nothing more, and says so.
    pub fn close(&mut self) {
        self.capacity = Capacity::default();
        self.say_here(0);
    }

    pub fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    pub fn say_started(&mut self, ticket: Ticket, at: Millis) {
        self.say(RunnerWord::Started { ticket, at });
    }

    pub fn say_ended(&mut self, ticket: Ticket, at: Millis, outcome: Outcome) {
        let held = self.held.remove(&ticket);
        self.processes -= usize::from(matches!(held, Some(Held::Process { .. })));
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
        self.say(RunnerWord::Here { capacity: self.capacity, holding, question, oldest_kept });
    }

    /// Says everything again that is not known to be committed.
    pub fn repeat(&mut self) {
        self.unsent = self.outbox.iter().cloned().collect();
    }

    /// The shard has committed everything up to `sequence`.
    pub fn forget(&mut self, sequence: u64) {
        while let Some(word) = self.outbox.front().filter(|word| word.sequence <= sequence) {
            if let RunnerWord::Ended { ticket, .. } = word.word {
                self.ended.remove(&ticket);
            }
            self.outbox.pop_front();
        }
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
        Link::new(RunnerId(1), Incarnation(1), Capacity { process: 1, echo: 1 })
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
        link.forget(2);
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
