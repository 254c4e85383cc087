//! What the shard knows of its runners, and what it does with their words.
//!
//! Words come at least once and in any order; they are applied once and in theirs.

use std::collections::VecDeque;
use std::sync::Arc;

use model::id::{Incarnation, JobId, RunnerId};
use model::job::Job;
use model::machine::{Event, Fault, Ignored};
use model::message::{Capacity, FromRunner, Load, Profile, RunnerCursor, RunnerWord, Ticket, ToRunner};
use model::parked::ParkedWord;
use model::spec::Lane;
use model::state::State;
use model::time::Millis;

use crate::config::Config;
use crate::input::Effect;
use crate::placement::fit::Standing;
use crate::placement::roster::Member;
use crate::placement::staff::{RunnerIndex, Traits};
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
    load: Load,
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
    /// It has said that it is here, and has not gone since.
    is_here: bool,
    pub dirty: bool,
    /// When it is to be looked after, at the earliest.
    pub check_at: Option<Millis>,
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
            load: Load::default(),
            held: [0; Lane::ALL.len()],
            lingering: Map::default(),
            lingers_since: Millis(0),
            dispatched: VecDeque::new(),
            is_unheard: true,
            is_here: false,
            dirty: false,
            check_at: None,
        }
    }

    pub fn cursor(&self) -> RunnerCursor {
        RunnerCursor { incarnation: self.incarnation, sequence: self.sequence }
    }

    pub fn held(&self, lane: Lane) -> u32 {
        self.held[lane as usize]
    }

    pub fn standings(&self) -> [Standing; Lane::ALL.len()] {
        Lane::ALL.map(|lane| Standing::new(lane, self.capacity, &self.held, self.load))
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

    /// When it is to be looked after: an attempt that has not started, or has not been let go of, becomes overdue.
    fn next_check(&self, config: &Config) -> Option<Millis> {
        let start = self.dispatched.front().map(|(at, _)| *at + config.dispatch_timeout);
        [start, self.next_question(config.stop_timeout)].into_iter().flatten().min()
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

    /// Frees the slot of an attempt whose job did not wait for its end; whether there was one.
    fn let_go(&mut self, ticket: Ticket) -> bool {
        let lane = self.lingering.remove(&ticket);
        if let Some(lane) = lane {
            self.release(lane);
        }
        lane.is_some()
    }

    /// It is gone: it gets nothing more, and nobody waits for what it had.
    pub fn close(&mut self) {
        self.capacity = Capacity::default();
        self.is_here = false;
        self.is_unheard = false;
        self.dispatched.clear();
        for lane in std::mem::take(&mut self.lingering).into_values() {
            self.release(lane);
        }
    }
}

impl Shard {
    pub(crate) fn runner_mut(&mut self, id: RunnerId) -> Option<&mut Runner> {
        let index = self.runners.index(id)?;
        self.runners.get_mut(index)
    }

    /// A runner that was not known, or takes the place of its earlier incarnation.
    pub(crate) fn put_runner(&mut self, id: RunnerId, runner: Runner) {
        let index = match self.runners.index(id) {
            Some(index) => index,
            None => {
                self.ready.staff.push(Member::new(id));
                self.runners.add(id, Runner::new(runner.cursor()))
            }
        };
        if let Some(old) = self.runners.get_mut(index) {
            let (dirty, check_at) = (old.dirty, old.check_at);
            *old = Runner { dirty, check_at, ..runner };
        }
        self.runner_changed(index);
    }

    /// Tells those who place jobs how a runner stands, and when it is to be looked after.
    pub(crate) fn runner_changed(&mut self, index: RunnerIndex) {
        let Some((_, runner)) = self.runners.get(index) else { return };
        let is_here = runner.is_here;
        self.ready.runner_stands(index, runner.standings(), runner.held);
        if !is_here {
            self.ready.runner_goes(index);
        }
        let at = runner.next_check(&self.config);
        self.runners.check(index, at);
    }

    pub(crate) fn runner_changed_by_id(&mut self, id: RunnerId) {
        if let Some(index) = self.runners.index(id) {
            self.runner_changed(index);
        }
    }

    /// A restored job is with a runner.
    pub(crate) fn restore_hand(&mut self, job: &Job) {
        self.ready.count_running(job, true);
        let Some((id, incarnation)) = job.runner() else { return };
        self.runners.hand_over(id, job.id);
        let ticket = Ticket { job: job.id, attempt: job.attempt };
        self.change_runner(id, incarnation, |runner| runner.take(job.lane, ticket, job.since()));
    }

    /// After a restart every runner is asked what it has in hand.
    pub(crate) fn resume_runners(&mut self, step: &mut Step) {
        let mut runners: Vec<_> = self.runners.iter().map(|(id, runner)| (*id, runner.incarnation)).collect();
        runners.sort_unstable();
        for (id, incarnation) in runners {
            self.ask_inventory(id, incarnation, step);
            self.change_runner(id, incarnation, Runner::sort_dispatched);
        }
    }

    /// Changes a runner that is of this incarnation.
    fn change_runner(&mut self, id: RunnerId, incarnation: Incarnation, change: impl FnOnce(&mut Runner)) {
        if let Some(index) = self.runners.index(id)
            && let Some(runner) = self.runners.get_mut(index)
            && runner.incarnation == incarnation
        {
            change(runner);
            self.runner_changed(index);
        }
    }

    /// The runner has let go of an attempt.
    pub(crate) fn free_slot(&mut self, id: RunnerId, incarnation: Incarnation, lane: Lane) {
        self.change_runner(id, incarnation, |runner| runner.release(lane));
    }

    /// The job is done with an attempt that its runner may still have in hand.
    pub(crate) fn keep_slot(&mut self, id: RunnerId, incarnation: Incarnation, ticket: Ticket, lane: Lane) {
        let now = self.now;
        self.change_runner(id, incarnation, |runner| {
            // It takes the slot that its job had, not another one.
            runner.release(lane);
            runner.linger(lane, ticket, now);
        });
    }

    /// How busy the runner's machine is.
    pub(crate) fn runner_load(&mut self, id: RunnerId, incarnation: Incarnation, load: Load) {
        self.change_runner(id, incarnation, |runner| runner.load = load);
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
        if let Some(index) = self.runners.index(id) {
            if let Some(runner) = self.runners.get_mut(index) {
                runner.sequence = word.sequence;
            }
            self.runners.mark_dirty(index);
        }
        match word.word {
            RunnerWord::Here { capacity, profile, mut holding, question, .. } => {
                holding.sort_unstable();
                self.here(id, capacity, &holding, question, step);
                self.runner_is(id, profile);
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
                if let Some(runner) = self.runner_mut(id)
                    && runner.let_go(ticket)
                {
                    self.runner_changed_by_id(id);
                }
                let parked = ParkedWord {
                    at: self.now,
                    runner: id,
                    incarnation,
                    sequence: word.sequence,
                    job: ticket.job,
                    attempt: ticket.attempt,
                    why: String::new(),
                };
                let outcome = self.take_or_park(ticket, outcome, parked, step);
                self.ended(ticket, outcome, step);
            }
        }
    }

    /// Jobs with an attempt in the hands of a runner, in the order of their ids.
    pub(crate) fn on_runner(&self, id: RunnerId, matches: impl Fn(Incarnation) -> bool) -> Vec<JobId> {
        let holds =
            |holder: Option<(RunnerId, Incarnation)>| holder.is_some_and(|(other, inc)| other == id && matches(inc));
        let held = |job: &JobId| self.jobs.get(job).is_some_and(|entry| holds(entry.holder()));
        let mut jobs: Vec<JobId> = self.runners.jobs_of(id).filter(held).collect();
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
        runner.is_here = true;
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

    /// Notes what a runner that is here is, and how it stands by now.
    fn runner_is(&mut self, id: RunnerId, profile: Arc<Profile>) {
        let Some(index) = self.runners.index(id) else { return };
        self.runner_changed(index);
        let Some(member) = self.ready.member(index) else { return };
        if member.is_here && *member.traits.profile() == profile {
            return;
        }
        let traits = Traits::new(profile, &self.ready.setup);
        self.ready.runner_goes(index);
        self.ready.runner_comes(index, traits);
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
                self.change_runner(id, incarnation, |runner| runner.linger(lane, ticket, now));
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
        self.runner_changed_by_id(id);
    }

    /// Looks after the runners whose time has come, a bounded number of them: for attempts that were given out and
    /// never started, and for what they should have let go of by now.
    pub(crate) fn check_runners(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            let Some(index) = self.runners.pop_check(self.now) else { break };
            self.check_dispatched(index, step);
            self.check_hands(index, step);
            let next = self.runners.get(index).and_then(|(_, runner)| runner.next_check(&self.config));
            self.runners.check(index, next);
        }
    }

    fn check_dispatched(&mut self, index: RunnerIndex, step: &mut Step) {
        let overdue_before = self.now.saturating_sub(self.config.dispatch_timeout);
        for _ in 0..self.config.timers_per_step {
            self.trim_dispatched(index);
            let Some(runner) = self.runners.get_mut(index) else { break };
            let Some((at, ticket)) = runner.dispatched.front().copied() else { break };
            if at > overdue_before {
                break;
            }
            runner.dispatched.pop_front();
            let _ = self.fire(ticket.job, Event::DispatchTimedOut { attempt: ticket.attempt }, step);
        }
    }

    /// Forgets attempts that have started or ended.
    fn trim_dispatched(&mut self, index: RunnerIndex) {
        let jobs = &self.jobs;
        let Some(runner) = self.runners.get_mut(index) else { return };
        let waits = |ticket: &Ticket| {
            jobs.get(&ticket.job)
                .is_some_and(|entry| entry.job.state == State::Dispatched && entry.job.attempt == ticket.attempt)
        };
        while runner.dispatched.front().is_some_and(|(_, ticket)| !waits(ticket)) {
            runner.dispatched.pop_front();
        }
        // One that starts late must not keep thousands behind it that have long ended.
        let held = runner.held.iter().map(|held| *held as usize).sum::<usize>();
        if runner.dispatched.len() > 2 * held + 1024 {
            runner.dispatched.retain(|(_, ticket)| waits(ticket));
        }
    }

    /// Asks a runner about attempts that it should have let go of by now, since the order to stop may have been lost,
    /// and about those of which it has not yet said that it has them.
    fn check_hands(&mut self, index: RunnerIndex, step: &mut Step) {
        let Some((id, runner)) = self.runners.get(index) else { return };
        let (id, incarnation) = (*id, runner.incarnation);
        if runner.next_question(self.config.stop_timeout).is_some_and(|at| at <= self.now) {
            self.ask_inventory(id, incarnation, step);
        }
    }

    /// The cursors that have moved since the last flush.
    pub(crate) fn take_moved_cursors(&mut self) -> Vec<(RunnerId, RunnerCursor)> {
        let mut moved = Vec::new();
        for index in self.runners.take_dirty() {
            self.trim_dispatched(index);
            moved.extend(self.runners.get(index).map(|(id, runner)| (*id, runner.cursor())));
        }
        moved
    }
}
