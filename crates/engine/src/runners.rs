//! What the shard knows of its runners, and what it does with their words.
//!
//! Words come at least once and in any order; they are applied once and in theirs.

use std::collections::VecDeque;

use model::id::{Incarnation, JobId, RunnerId};
use model::machine::{Event, Fault, Ignored};
use model::message::{Capacity, FromRunner, RunnerCursor, RunnerWord, Ticket, ToRunner};
use model::spec::Lane;
use model::state::State;
use model::time::Millis;

use crate::input::Effect;
use crate::shard::{Decided, Map, Shard};
use crate::step::Step;

/// A gap in a runner's words is asked about at most this often.
const ASK_INTERVAL: Millis = Millis(1_000);

/// A runner that has not said what it has in hand, and how much room, is asked this often.
const ASK_UNHEARD_INTERVAL: Millis = Millis(5_000);

/// A runner as this shard sees it.
#[derive(Debug)]
pub(crate) struct Runner {
    pub incarnation: Incarnation,
    /// The last of its words that was applied.
    pub sequence: u64,
    /// The newest inventory question.
    pub question: u64,
    asked_at: Millis,
    capacity: Capacity,
    held: [u32; Lane::ALL.len()],
    /// Attempts that the shard has given up and the runner has not confirmed: they take their slot until then.
    lingering: Map<Ticket, Lane>,
    /// When the first of them came.
    lingers_since: Millis,
    /// Attempts in the order they were given out, to find those that never start.
    dispatched: VecDeque<(Millis, Ticket)>,
    /// Since this incarnation, or this owner of the shard, began it has not said what it has in hand. What earlier
    /// incarnations were given waits for that.
    pub is_unheard: bool,
    pub dirty: bool,
}

impl Runner {
    pub fn new(cursor: RunnerCursor) -> Self {
        Self {
            incarnation: cursor.incarnation,
            sequence: cursor.sequence,
            question: 0,
            asked_at: Millis(0),
            // Until it has said that it is here, it gets nothing.
            capacity: Capacity::default(),
            held: [0; Lane::ALL.len()],
            lingering: Map::default(),
            lingers_since: Millis(0),
            dispatched: VecDeque::new(),
            is_unheard: true,
            dirty: false,
        }
    }

    pub fn cursor(&self) -> RunnerCursor {
        RunnerCursor { incarnation: self.incarnation, sequence: self.sequence }
    }

    pub fn free(&self, lane: Lane) -> u32 {
        self.capacity.of(lane).saturating_sub(self.held[lane as usize])
    }

    pub fn held(&self, lane: Lane) -> u32 {
        self.held[lane as usize]
    }

    /// Counts an attempt that was given out.
    pub fn take(&mut self, lane: Lane, ticket: Ticket, now: Millis) {
        self.held[lane as usize] += 1;
        self.dispatched.push_back((now, ticket));
    }

    fn release(&mut self, lane: Lane) {
        self.held[lane as usize] = self.held[lane as usize].saturating_sub(1);
    }

    /// After a restart they come in the order of their jobs, not of their times.
    pub fn sort_dispatched(&mut self) {
        self.dispatched.make_contiguous().sort_unstable();
    }

    /// When it is to be asked what it has in hand, if it is.
    fn next_question(&self, stop_timeout: Millis) -> Option<Millis> {
        let lingering = (!self.lingering.is_empty()).then(|| self.lingers_since.max(self.asked_at) + stop_timeout);
        let unheard = self.is_unheard.then(|| self.asked_at + ASK_UNHEARD_INTERVAL);
        [lingering, unheard].into_iter().flatten().min()
    }

    pub fn lingering(&self) -> usize {
        self.lingering.len()
    }

    /// Takes a slot for an attempt that no job waits for any more, until its end is said.
    fn linger(&mut self, lane: Lane, ticket: Ticket, now: Millis) {
        if self.lingering.is_empty() {
            self.lingers_since = now;
        }
        // What is known of it from before, when its job may still have been there, is the better knowledge.
        self.lingering.entry(ticket).or_insert_with(|| {
            self.held[lane as usize] += 1;
            lane
        });
    }

    /// Frees the slot of an attempt whose job did not wait for its end.
    fn let_go(&mut self, ticket: Ticket) {
        if let Some(lane) = self.lingering.remove(&ticket) {
            self.release(lane);
        }
    }

    /// It is gone: it gets nothing more, and nobody waits for what it had.
    pub fn close(&mut self) {
        self.capacity = Capacity::default();
        self.is_unheard = false;
        self.dispatched.clear();
        for lane in std::mem::take(&mut self.lingering).into_values() {
            self.release(lane);
        }
    }
}

impl Shard {
    pub(crate) fn runner_mut(&mut self, id: RunnerId) -> Option<&mut Runner> {
        self.runners.iter_mut().find(|(other, _)| *other == id).map(|(_, runner)| runner)
    }

    /// The runner has let go of an attempt.
    pub(crate) fn free_slot(&mut self, id: RunnerId, incarnation: Incarnation, lane: Lane) {
        if let Some(runner) = self.runner_mut(id)
            && runner.incarnation == incarnation
        {
            runner.release(lane);
        }
    }

    /// The job is done with an attempt that its runner may still have in hand.
    pub(crate) fn keep_slot(&mut self, id: RunnerId, incarnation: Incarnation, ticket: Ticket, lane: Lane) {
        let now = self.now;
        if let Some(runner) = self.runner_mut(id)
            && runner.incarnation == incarnation
        {
            // It takes the slot that its job had, not another one.
            runner.release(lane);
            runner.linger(lane, ticket, now);
        }
    }

    pub(crate) fn runner_word(&mut self, word: FromRunner, step: &mut Step) {
        let (id, incarnation) = (word.runner, word.incarnation);
        let known = self.runner_mut(id).map(|runner| (runner.incarnation, runner.sequence));
        let applied = match known {
            Some((current, _)) if incarnation < current => return,
            Some((current, sequence)) if incarnation == current => sequence,
            Some(_) | None => 0,
        };
        if word.sequence <= applied {
            self.stats.duplicate_words += 1;
            // It says it again because it has not heard that it is committed.
            let message = ToRunner::Committed { sequence: applied };
            return step.effects.push(Effect::Send { runner: id, incarnation, message });
        }
        // The word that is missing next can be said again as long as it is not older than the oldest that is kept.
        let unfillable = matches!(word.word, RunnerWord::Here { oldest_kept, .. } if oldest_kept > applied + 1);
        if word.sequence > applied + 1 && !unfillable {
            self.stats.gaps += 1;
            return self.ask_inventory(id, incarnation, step);
        }
        if known.is_none_or(|(current, _)| incarnation > current) {
            self.welcome(id, incarnation);
        }
        if let Some(runner) = self.runner_mut(id) {
            runner.sequence = word.sequence;
            runner.dirty = true;
        }
        match word.word {
            RunnerWord::Here { capacity, mut holding, question, .. } => {
                holding.sort_unstable();
                self.here(id, capacity, &holding, question, step);
            }
            RunnerWord::Started { ticket, at } => {
                let started = self.fire(ticket.job, Event::Started { attempt: ticket.attempt, at }, step);
                if let Err(Ignored::Terminal | Ignored::StaleAttempt) = started {
                    // It was given up before; the order to stop must have come before the one to run.
                    let message = ToRunner::Stop { ticket };
                    step.effects.push(Effect::Send { runner: id, incarnation, message });
                }
            }
            RunnerWord::Ended { ticket, outcome, .. } => {
                if let Some(runner) = self.runner_mut(id) {
                    runner.let_go(ticket);
                }
                let _ = self.fire(ticket.job, Event::Ended { attempt: ticket.attempt, outcome }, step);
            }
        }
    }

    /// Jobs with an attempt in the hands of a runner, in the order of their ids.
    pub(crate) fn on_runner(&self, id: RunnerId, matches: impl Fn(Incarnation) -> bool) -> Vec<JobId> {
        let holds =
            |holder: Option<(RunnerId, Incarnation)>| holder.is_some_and(|(other, inc)| other == id && matches(inc));
        let mut jobs: Vec<JobId> =
            self.jobs.values().filter(|entry| holds(entry.holder())).map(|entry| entry.job.id).collect();
        jobs.sort_unstable();
        jobs
    }

    /// Asks a runner what it has in hand, now and then.
    pub(crate) fn ask_inventory(&mut self, id: RunnerId, incarnation: Incarnation, step: &mut Step) {
        let now = self.now;
        // Unique over all owners of the shard, so that an answer to a predecessor is not taken for one to us.
        let first_question = self.epoch.0 << 24;
        let question = match self.runner_mut(id) {
            Some(runner) if runner.incarnation == incarnation => {
                if runner.question != 0 && now < runner.asked_at + ASK_INTERVAL {
                    return;
                }
                runner.asked_at = now;
                runner.question = runner.question.max(first_question) + 1;
                runner.question
            }
            // Not yet known: there is nothing to compare the answer with, so it must not be taken for a later one.
            Some(_) | None => {
                if self.strangers.get(&id).is_some_and(|asked_at| now < *asked_at + ASK_INTERVAL) {
                    return;
                }
                self.strangers.insert(id, now);
                first_question
            }
        };
        let message = ToRunner::Inventory { question };
        step.effects.push(Effect::Send { runner: id, incarnation, message });
    }

    /// `holding` is sorted.
    fn here(&mut self, id: RunnerId, capacity: Capacity, holding: &[Ticket], question: u64, step: &mut Step) {
        let Some(runner) = self.runner_mut(id) else { return };
        runner.capacity = capacity;
        let incarnation = runner.incarnation;
        let answers = question != 0 && question == runner.question;
        if runner.is_unheard {
            self.decide_orphans(id, incarnation, holding);
        }
        for ticket in holding {
            self.see_held(id, incarnation, *ticket, step);
        }
        if answers {
            self.reconcile(id, incarnation, holding, question);
        }
    }

    /// A runner has an attempt in hand: that may be as it should, or it is to let go of it.
    fn see_held(&mut self, id: RunnerId, incarnation: Incarnation, ticket: Ticket, step: &mut Step) {
        let entry = self.jobs.get(&ticket.job);
        let its_own = entry.filter(|entry| {
            let given_up = matches!(entry.decided, Some(Decided::Lose(_)));
            entry.job.attempt == ticket.attempt && entry.holder() == Some((id, incarnation)) && !given_up
        });
        match its_own {
            Some(entry) if !entry.job.is_to_stop() => return,
            Some(_) => {}
            None => {
                // Of a job that is gone nobody knows the kind; what outlives all else is a process.
                let lane = entry.map_or(Lane::Process, |entry| entry.job.lane);
                let now = self.now;
                if let Some(runner) = self.runner_mut(id) {
                    runner.linger(lane, ticket, now);
                }
            }
        }
        step.effects.push(Effect::Send { runner: id, incarnation, message: ToRunner::Stop { ticket } });
    }

    /// Compares what the shard gave out before it asked with what the runner has.
    fn reconcile(&mut self, id: RunnerId, incarnation: Incarnation, holding: &[Ticket], question: u64) {
        for job in self.on_runner(id, |holder| holder == incarnation) {
            let Some(entry) = self.jobs.get(&job) else { continue };
            let ticket = Ticket { job, attempt: entry.job.attempt };
            if entry.dispatched_after >= question || holding.binary_search(&ticket).is_ok() {
                continue;
            }
            // The word never arrived, or what became of it is lost; only the second may be the job's doing.
            let fault = match entry.job.state {
                State::Running if !entry.job.lane.restarts_free_of_charge() => Fault::Unknown,
                _ => Fault::NotTheJobs,
            };
            self.give_up(job, fault);
        }
        let Some(runner) = self.runner_mut(id) else { return };
        let gone = |(ticket, _): &(&Ticket, &Lane)| holding.binary_search(ticket).is_err();
        let gone: Vec<Ticket> = runner.lingering.iter().filter(gone).map(|(ticket, _)| *ticket).collect();
        for ticket in gone {
            runner.let_go(ticket);
        }
    }

    /// Looks for attempts that were given out and never started.
    pub(crate) fn check_dispatched(&mut self, step: &mut Step) {
        let overdue_before = self.now.saturating_sub(self.config.dispatch_timeout);
        for index in 0..self.runners.len() {
            for _ in 0..self.config.timers_per_step {
                self.trim_dispatched(index);
                let (_, runner) = &mut self.runners[index];
                let Some((at, ticket)) = runner.dispatched.front().copied() else { break };
                if at > overdue_before {
                    break;
                }
                runner.dispatched.pop_front();
                let _ = self.fire(ticket.job, Event::DispatchTimedOut { attempt: ticket.attempt }, step);
            }
        }
    }

    /// Forgets attempts that have started or ended.
    pub(crate) fn trim_dispatched(&mut self, index: usize) {
        let jobs = &self.jobs;
        let (_, runner) = &mut self.runners[index];
        let waits = |ticket: &Ticket| {
            jobs.get(&ticket.job)
                .is_some_and(|entry| entry.job.state == State::Dispatched && entry.job.attempt == ticket.attempt)
        };
        while runner.dispatched.front().is_some_and(|(_, ticket)| !waits(ticket)) {
            runner.dispatched.pop_front();
        }
        // One that starts late must not keep thousands behind it that have long ended.
        let held = runner.held.iter().sum::<u32>() as usize;
        if runner.dispatched.len() > 2 * held + 1024 {
            runner.dispatched.retain(|(_, ticket)| waits(ticket));
        }
    }

    /// Asks runners about attempts that they should have let go of by now, since the order to stop may have been lost,
    /// and about those of which they have not yet said that they have them.
    pub(crate) fn check_hands(&mut self, step: &mut Step) {
        for index in 0..self.runners.len() {
            let (id, runner) = &self.runners[index];
            let (id, incarnation) = (*id, runner.incarnation);
            if runner.next_question(self.config.stop_timeout).is_some_and(|at| at <= self.now) {
                self.ask_inventory(id, incarnation, step);
            }
        }
    }

    /// When the first attempt that has not started, or has not been let go of, becomes overdue.
    pub(crate) fn next_runner_check(&self) -> Option<Millis> {
        let checks = self.runners.iter().map(|(_, runner)| {
            let start = runner.dispatched.front().map(|(at, _)| *at + self.config.dispatch_timeout);
            [start, runner.next_question(self.config.stop_timeout)].into_iter().flatten().min()
        });
        checks.flatten().min()
    }
}
