//! Runners as documented in `model::message`: an outbox of words that are said again until they are committed, attempts
//! known by their ticket, an inventory on demand. They crash, are cut off, are declared lost and work on. What their
//! processes do meanwhile is in [`crate::spawner`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::id::{Epoch, Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{Capacity, FromRunner, Profile, RunnerWord, ShardFace, Ticket, ToRunner};
use model::spec::{EchoFailure, EchoRun, Run, decode_run};

use crate::coverage::Fault;
use crate::invariants::{self, Checked};
use crate::plan::{SECOND, Time};
use crate::rng::Rate;
use crate::spawner::Kept;
use crate::world::{Event, Inbound, World, trace};

/// What is not known to be committed is said again this often.
const SAY_AGAIN_EVERY: Time = SECOND;

#[derive(Debug)]
pub struct Runner {
    pub id: RunnerId,
    pub incarnation: Incarnation,
    profile: Arc<Profile>,
    up: bool,
    cut_off: bool,
    /// What the cluster believes: this incarnation is gone.
    declared_lost: Option<Incarnation>,
    /// The newest incarnation that was ever declared lost.
    pub lost_before: Option<Incarnation>,
    next_here: Time,
    pub links: BTreeMap<usize, Link>,
    /// What outlives the runner, by shard.
    pub kept: BTreeMap<usize, BTreeMap<Ticket, Kept>>,
    /// What this incarnation found alive when it came up.
    pub found: BTreeSet<Ticket>,
}

/// The conversation with one shard.
#[derive(Debug)]
pub struct Link {
    epoch: Epoch,
    capacity: Capacity,
    sequence: u64,
    outbox: VecDeque<FromRunner>,
    pub held: BTreeMap<Ticket, Held>,
    /// Attempts whose end is in the outbox, and how they ended if they ever were in hand.
    pub ended: BTreeMap<Ticket, Option<End>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    Waiting,
    Started,
    Stopping,
}

impl Runner {
    pub fn new(id: RunnerId) -> Self {
        Self {
            id,
            incarnation: Incarnation(0),
            profile: Arc::default(),
            up: false,
            cut_off: false,
            declared_lost: None,
            lost_before: None,
            next_here: 0,
            links: BTreeMap::new(),
            kept: BTreeMap::new(),
            found: BTreeSet::new(),
        }
    }

    fn is_reachable(&self) -> bool {
        self.up && !self.cut_off
    }

    /// Notes a word in the outbox; it is sent from there.
    pub fn say(&mut self, shard: usize, word: RunnerWord) {
        let (runner, incarnation) = (self.id, self.incarnation);
        let Some(link) = self.links.get_mut(&shard) else { return };
        link.sequence += 1;
        link.outbox.push_back(FromRunner { runner, incarnation, sequence: link.sequence, word });
    }

    pub fn say_here(&mut self, shard: usize, question: u64) {
        let Some(link) = self.links.get(&shard) else { return };
        let oldest_kept = link.outbox.front().map_or(link.sequence + 1, |word| word.sequence);
        let (capacity, holding) = (link.capacity, link.held.keys().copied().collect());
        let profile = self.profile.clone();
        self.say(shard, RunnerWord::Here { capacity, profile, holding, question, oldest_kept });
    }

    pub fn say_ended(&mut self, shard: usize, ticket: Ticket, end: End, result: Json) {
        let Some(link) = self.links.get_mut(&shard) else { return };
        let was_in_hand = link.held.remove(&ticket).is_some();
        // A refusal for lack of room may be followed by the same ticket when there is some.
        if end != End::Busy {
            link.ended.insert(ticket, was_in_hand.then_some(end));
        }
        let result = (end == End::Succeeded).then_some(result);
        let outcome = Box::new(Outcome { result, ..Outcome::of(end) });
        self.say(shard, RunnerWord::Ended { ticket, at: model::time::Millis(0), outcome });
    }
}

impl Link {
    fn forget(&mut self, sequence: u64) {
        while let Some(word) = self.outbox.front().filter(|word| word.sequence <= sequence) {
            if let RunnerWord::Ended { ticket, .. } = word.word {
                self.ended.remove(&ticket);
            }
            self.outbox.pop_front();
        }
    }
}

impl World {
    fn draw_room(&mut self) -> Capacity {
        let room = self.plan.room_max;
        let mut draw = || self.rng.between(1, room) as u32;
        Capacity { process: draw(), echo: draw(), wasm: draw() }
    }

    /// A runner comes up, for the first time or after a crash, with nothing in hand but what has outlived it.
    pub(crate) fn runner_starts(&mut self, index: usize) {
        if self.runners[index].up {
            return;
        }
        let mut links = BTreeMap::new();
        for shard in 0..self.hosts.len() {
            let link = Link {
                epoch: Epoch(0),
                capacity: self.draw_room(),
                sequence: 0,
                outbox: VecDeque::new(),
                held: BTreeMap::new(),
                ended: BTreeMap::new(),
            };
            links.insert(shard, link);
        }
        let runner = &mut self.runners[index];
        runner.incarnation = Incarnation(runner.incarnation.0 + 1);
        (runner.up, runner.links) = (true, links);
        runner.found.clear();
        let (id, incarnation) = (runner.id, runner.incarnation);
        trace!(self, "{id} starts as {}", incarnation.0);
        for shard in 0..self.hosts.len() {
            self.find_what_is_alive(index, shard);
        }
        self.after(1, Event::RunnerTick { runner: index, incarnation });
    }

    /// Now and then: says again what is not committed, and says what it has.
    pub(crate) fn runner_tick(&mut self, index: usize, incarnation: Incarnation) {
        if !self.runners[index].up || self.runners[index].incarnation != incarnation {
            return;
        }
        let here = self.now >= self.runners[index].next_here;
        if here {
            self.runners[index].next_here = self.now + self.plan.here_every;
        }
        for shard in 0..self.hosts.len() {
            // One unanswered word of that kind is enough.
            let idle = self.runners[index].links.get(&shard).is_some_and(|link| link.outbox.is_empty());
            if here && idle {
                self.change_room(index, shard);
                self.runners[index].say_here(shard, 0);
            }
            self.send_words(index, shard, 0);
        }
        self.after(SAY_AGAIN_EVERY, Event::RunnerTick { runner: index, incarnation });
    }

    /// Memory gets short, or there is more of it again.
    fn change_room(&mut self, index: usize, shard: usize) {
        if self.rng.chance(self.plan.room_changes) {
            self.coverage.fault(Fault::RoomChanged);
            let room = if self.rng.one_in(3) { Capacity::default() } else { self.draw_room() };
            if let Some(link) = self.runners[index].links.get_mut(&shard) {
                link.capacity = room;
            }
        }
    }

    /// Sends what is in the outbox behind `after`.
    fn send_words(&mut self, index: usize, shard: usize, after: u64) {
        let runner = &self.runners[index];
        if !runner.is_reachable() {
            return;
        }
        let Some(link) = runner.links.get(&shard) else { return };
        let words: Vec<FromRunner> = link.outbox.iter().filter(|word| word.sequence > after).cloned().collect();
        if words.is_empty() {
            return;
        }
        for delay in self.message_delays() {
            self.after(delay, Event::Deliver { shard, inbound: Inbound::Words(words.clone()) });
        }
    }

    pub(crate) fn runner_hears(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        face: ShardFace,
        message: ToRunner,
    ) -> Checked {
        let shard = usize::from(face.shard.0);
        let runner = &mut self.runners[index];
        if !runner.is_reachable() || runner.incarnation != incarnation {
            return Ok(());
        }
        let Some(link) = runner.links.get_mut(&shard) else { return Ok(()) };
        if face.epoch < link.epoch {
            return Ok(());
        }
        link.epoch = face.epoch;
        let said = link.sequence;
        match message {
            ToRunner::Run { ticket, .. } => self.runner_takes(index, shard, ticket)?,
            ToRunner::Stop { ticket } => self.runner_stops(index, shard, ticket),
            ToRunner::Committed { sequence } => link.forget(sequence),
            ToRunner::Inventory { question } => {
                self.runners[index].say_here(shard, question);
                self.send_words(index, shard, 0);
                return Ok(());
            }
        }
        self.send_words(index, shard, said);
        Ok(())
    }

    fn runner_takes(&mut self, index: usize, shard: usize, ticket: Ticket) -> Checked {
        let record = self.ledger.jobs.get(&ticket.job).map(|known| &known.record);
        invariants::invariant_runners_get_what_is_on_record(ticket, record)?;
        let id = self.runners[index].id;
        let Some(link) = self.runners[index].links.get_mut(&shard) else { return Ok(()) };
        if link.held.contains_key(&ticket) || link.ended.contains_key(&ticket) {
            self.coverage.note("known attempts given out again");
            return Ok(());
        }
        trace!(self, "{id} takes {}/{}", ticket.job, ticket.attempt);
        let Some(link) = self.runners[index].links.get_mut(&shard) else { return Ok(()) };
        let Capacity { process, echo, wasm } = link.capacity;
        let room = (process + echo + wasm) as usize;
        if self.rng.chance(self.plan.attempts.busy) || link.held.len() >= 2 * room {
            self.coverage.fault(Fault::RunnerBusy);
            self.runners[index].say_ended(shard, ticket, End::Busy, Json::null());
            return Ok(());
        }
        link.held.insert(ticket, Held::Waiting);
        let incarnation = self.runners[index].incarnation;
        let delay = if self.rng.chance(self.plan.attempts.slow_start) {
            self.rng.below(40 * SECOND)
        } else {
            self.rng.below(5)
        };
        self.after(delay, Event::AttemptStarts { runner: index, incarnation, shard, ticket });
        Ok(())
    }

    fn runner_stops(&mut self, index: usize, shard: usize, ticket: Ticket) {
        let incarnation = self.runners[index].incarnation;
        let Some(link) = self.runners[index].links.get_mut(&shard) else { return };
        match link.held.get_mut(&ticket) {
            Some(Held::Stopping) => {}
            Some(held) => {
                *held = Held::Stopping;
                let delay = self.rng.below(2 * SECOND);
                self.after(delay, Event::AttemptEnds { runner: index, incarnation, shard, ticket, end: End::Stopped });
            }
            None if link.ended.contains_key(&ticket) => {}
            None => self.runners[index].say_ended(shard, ticket, End::Stopped, Json::null()),
        }
    }

    pub(crate) fn attempt_starts(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        shard: usize,
        ticket: Ticket,
    ) -> Checked {
        let runner = &mut self.runners[index];
        if !runner.up || runner.incarnation != incarnation {
            return Ok(());
        }
        let Some(link) = runner.links.get_mut(&shard) else { return Ok(()) };
        let said = link.sequence;
        match link.held.get_mut(&ticket) {
            Some(held @ Held::Waiting) => *held = Held::Started,
            Some(Held::Started | Held::Stopping) | None => return Ok(()),
        }
        invariants::invariant_an_attempt_runs_in_one_place(ticket, self.alive.insert(ticket))?;
        self.runners[index].say(shard, RunnerWord::Started { ticket, at: model::time::Millis(0) });
        self.send_words(index, shard, said);
        self.attempt_runs(index, incarnation, shard, ticket);
        Ok(())
    }

    /// Draws how an attempt goes on from here.
    pub(crate) fn attempt_runs(&mut self, index: usize, incarnation: Incarnation, shard: usize, ticket: Ticket) {
        if self.rng.chance(self.plan.attempts.hang) {
            self.coverage.fault(Fault::RunnerHung);
            return;
        }
        let end = self.draw_end(ticket);
        let takes = self.rng.below(self.plan.attempts.takes_max);
        self.after(takes, Event::AttemptEnds { runner: index, incarnation, shard, ticket, end });
    }

    /// What an attempt that succeeds returns.
    pub(crate) fn result_of(&self, ticket: Ticket) -> Json {
        let job = self.ledger.jobs.get(&ticket.job).map(|known| &known.record);
        job.map_or_else(|| invariants::result_of(ticket), |job| invariants::result_of_job(job, ticket))
    }

    /// How the jobs of workflows end that are made to fail.
    fn end_as_told(&self, ticket: Ticket) -> Option<End> {
        let job = &self.ledger.jobs.get(&ticket.job)?.record;
        let origin = job.origin.as_ref()?;
        // Whoever tries to undo something again by hand has looked into what was wrong before.
        let mended = origin.compensation && ticket.attempt.0 > 1;
        match decode_run(&job.spec) {
            Ok(Run::Echo(EchoRun { fail: Some(EchoFailure::Error), .. })) => Some(End::Error),
            Ok(Run::Echo(EchoRun { fail: Some(EchoFailure::Fatal), .. })) => (!mended).then_some(End::Fatal),
            Ok(Run::Echo(_) | Run::Process(_) | Run::Wasm(_)) | Err(_) => None,
        }
    }

    pub(crate) fn draw_end(&mut self, ticket: Ticket) -> End {
        if let Some(end) = self.end_as_told(ticket) {
            return end;
        }
        let attempts = self.plan.attempts;
        let ends: [(Rate, End); 4] = [
            (attempts.error, End::Error),
            (attempts.fatal, End::Fatal),
            (attempts.infrastructure, End::Infrastructure),
            (attempts.drained, End::Stopped),
        ];
        let drawn = ends.into_iter().find(|(rate, _)| self.rng.chance(*rate));
        drawn.map_or(End::Succeeded, |(_, end)| end)
    }

    pub(crate) fn attempt_ends(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        (shard, ticket): (usize, Ticket),
        end: End,
    ) {
        let runner = &mut self.runners[index];
        if !runner.up || runner.incarnation != incarnation {
            return;
        }
        let Some(link) = runner.links.get_mut(&shard).filter(|link| link.held.contains_key(&ticket)) else { return };
        let said = link.sequence;
        if runner.declared_lost == Some(incarnation) {
            self.coverage.fault(Fault::RunnerWorkedOn);
        }
        let result = self.result_of(ticket);
        self.runners[index].say_ended(shard, ticket, end, result);
        self.alive.remove(&ticket);
        self.send_words(index, shard, said);
    }

    pub(crate) fn crash_runner(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        if !runner.up {
            return;
        }
        runner.up = false;
        let (id, incarnation) = (runner.id, runner.incarnation);
        trace!(self, "{id} crashes");
        self.coverage.fault(Fault::RunnerCrashed);
        self.outlive_crash(index);
        let down = self.rng.between(SECOND, 30 * SECOND);
        self.after(down, Event::RunnerStarts { runner: index });
        self.after(self.plan.lost_after, Event::DeclareLost { runner: index, incarnation });
    }

    pub(crate) fn cut_off_runner(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        if !runner.is_reachable() {
            return;
        }
        runner.cut_off = true;
        let (id, incarnation) = (runner.id, runner.incarnation);
        trace!(self, "{id} is cut off");
        self.coverage.fault(Fault::RunnerCutOff);
        let silent = self.rng.between(SECOND, 40 * SECOND);
        self.after(silent, Event::RunnerReached { runner: index });
        self.after(self.plan.lost_after, Event::DeclareLost { runner: index, incarnation });
    }

    pub(crate) fn runner_reached(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        runner.cut_off = false;
        runner.declared_lost = None;
        trace!(self, "{} is reached again", self.runners[index].id);
    }

    /// If it is still silent, every shard is told that this incarnation is gone.
    pub(crate) fn declare_lost(&mut self, index: usize, incarnation: Incarnation) {
        let runner = &mut self.runners[index];
        let silent = runner.incarnation == incarnation && !runner.is_reachable();
        if !silent {
            return;
        }
        runner.declared_lost = Some(incarnation);
        runner.lost_before = runner.lost_before.max(Some(incarnation));
        trace!(self, "{} is declared lost", self.runners[index].id);
        self.coverage.fault(Fault::RunnerDeclaredLost);
        for shard in 0..self.hosts.len() {
            self.tell_lost(index, shard, incarnation);
        }
    }

    fn tell_lost(&mut self, index: usize, shard: usize, incarnation: Incarnation) {
        let runner = self.runners[index].id;
        let delay = self.rng.below(500);
        self.after(delay, Event::Deliver { shard, inbound: Inbound::RunnerLost { runner, incarnation } });
    }

    /// A shard that comes back hears who is gone: whoever kept watch tells it again.
    pub(crate) fn tell_of_lost_runners(&mut self, shard: usize) {
        for index in 0..self.runners.len() {
            let lost = self.runners[index].declared_lost.filter(|_| !self.runners[index].is_reachable());
            if let Some(incarnation) = lost {
                self.tell_lost(index, shard, incarnation);
            }
        }
    }

    /// All come back; what hangs is stopped, sooner or later.
    pub(crate) fn heal_runners(&mut self) {
        for index in 0..self.runners.len() {
            self.runners[index].cut_off = false;
            self.runners[index].declared_lost = None;
            self.runner_starts(index);
            for shard in 0..self.hosts.len() {
                let room = self.draw_room();
                if let Some(link) = self.runners[index].links.get_mut(&shard) {
                    link.capacity = room;
                }
            }
            let incarnation = self.runners[index].incarnation;
            let held: Vec<(usize, Ticket)> = self.runners[index]
                .links
                .iter()
                .flat_map(|(shard, link)| link.held.keys().map(|ticket| (*shard, *ticket)))
                .collect();
            for (shard, ticket) in held {
                let delay = self.rng.below(60 * SECOND);
                let end = self.end_as_told(ticket).unwrap_or(End::Succeeded);
                self.after(delay, Event::AttemptEnds { runner: index, incarnation, shard, ticket, end });
            }
        }
    }
}
