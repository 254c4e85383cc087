//! Jobs that no runner there is can take.
//!
//! Such a job stays in line, so that a runner that comes takes it at once. Now and then it is looked at again: each look
//! that finds nobody is a try, kept in its record, and after so many of them it fails. To be in line for runners that
//! have no room, or to be at a limit, is no try.
//!
//! When the last fit runner goes, the jobs that wait for it are told when to look again, a few in each step. When one
//! comes nothing is taken back: whoever is looked at and finds that there is someone just goes on waiting.

use model::id::JobId;
use model::job::Job;
use model::machine::Event;
use model::reason::ReasonCode;
use model::state::State;

use crate::jitter;
use crate::placement::ask::AskKey;
use crate::placement::fit::{Fit, FitId};
use crate::placement::line::LineKey;
use crate::ready::Ready;
use crate::setup::DISPATCH_TRIES_DEFAULT;
use crate::shard::Shard;
use crate::step::Step;

/// How many waiting jobs are told in one step when to look again.
const ARMED_PER_STEP: usize = 1_000;

/// Whether it waits for a runner to come, and not for a time.
pub(crate) fn is_unplaced(job: &Job) -> bool {
    let unplaced = [ReasonCode::NoPoolMapping, ReasonCode::NoWorkers, ReasonCode::PoolOverloaded];
    let code = job.reason.as_ref().map(|reason| reason.code);
    job.state == State::Scheduled && job.dispatch_tries > 0 && code.is_some_and(|code| unplaced.contains(&code))
}

impl Ready {
    pub(crate) fn begin_arming(&mut self, id: FitId) {
        let Some(fit) = self.fits.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        // The first class is the last: whatever grows old meanwhile goes there.
        fit.arming = Some((fit.classes.len() - 1, None));
        self.arming.insert(id);
    }

    /// The next jobs that are to be told when to look again.
    fn next_to_arm(&mut self) -> Vec<JobId> {
        let Some(id) = self.arming.first().copied() else { return Vec::new() };
        let fit = self.fits.get_mut(id.0 as usize).and_then(Option::as_mut);
        let Some((fit, (class, from))) = fit.and_then(|fit| fit.arming.map(|cursor| (fit, cursor))) else {
            self.arming.remove(&id);
            return Vec::new();
        };
        let found = fit.classes[class].after(from, ARMED_PER_STEP);
        fit.arming = match found.last() {
            _ if fit.unplaced().is_none() => None,
            Some(last) if found.len() == ARMED_PER_STEP => Some((class, Some(*last))),
            Some(_) | None => class.checked_sub(1).map(|class| (class, None)),
        };
        if fit.arming.is_none() {
            self.arming.remove(&id);
        }
        found.into_iter().map(|(_, place)| place.1).collect()
    }
}

impl Shard {
    /// A job in line that no runner there is can take is looked at again at its time.
    pub(crate) fn await_runner(&mut self, id: JobId) {
        let Some(entry) = self.jobs.get_mut(&id).filter(|entry| entry.in_ready) else { return };
        let Some(fit) = entry.ask.and_then(|ask| self.ready.fit_of(ask)) else { return };
        if self.ready.fit(fit).is_none_or(|fit| fit.unplaced().is_none()) {
            return;
        }
        let at = if is_unplaced(&entry.job) && entry.job.eligible_at > self.now {
            entry.job.eligible_at
        } else {
            self.now + jitter::delay(&self.config.jitter_key, id, entry.job.dispatch_tries)
        };
        self.timers.wake(entry, at);
    }

    /// Tells the next of those that have lost their last fit runner when to look again.
    pub(crate) fn arm_unplaced(&mut self) {
        for id in self.ready.next_to_arm() {
            if self.jobs.get(&id).is_some_and(|entry| entry.wakes_at.is_none()) {
                self.await_runner(id);
            }
        }
    }

    /// The time of a scheduled job has come: to be put in line, or to look whether there is a runner for it by now.
    pub(crate) fn look_for_runner(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get(&id) else { return };
        if !entry.in_ready {
            return self.make_ready(id, step);
        }
        let (job, ask) = (&entry.job, entry.ask);
        let Some(fit) = ask.and_then(|ask| self.ready.fit_of(ask)).and_then(|id| self.ready.fit(id)) else { return };
        let Some((key, code)) = ask.and_then(|ask| self.ready.asks.get(ask)).map(|ask| &ask.key).zip(fit.unplaced())
        else {
            return;
        };
        if let Some(ask) = ask {
            let line = LineKey { ask, queue: job.queue };
            let queues = &self.queues;
            let has_room = |queue| queues.get(&queue).is_some_and(|entry| entry.has_room());
            if self.ready.shut_gate(self.ready.tenant_of(job.queue), line, &has_room).is_some() {
                return self.await_runner(id);
            }
        }
        let tries_max = self.tries_max(key);
        let tries = job.dispatch_tries + 1;
        let is_last = tries_max != 0 && tries >= tries_max;
        let until = (!is_last).then(|| self.now + jitter::delay(&self.config.jitter_key, id, tries));
        let message = self.describe_lack(key, fit, code);
        if self.fire(id, Event::Unplaced { code, message, until }, step).is_ok() {
            self.stats.count_unplaced(code);
        }
    }

    pub(crate) fn tries_max(&self, key: &AskKey) -> u32 {
        self.ready.setup.topic(&key.topic).map_or(DISPATCH_TRIES_DEFAULT, |topic| topic.dispatch_tries_max)
    }

    /// What was asked for and what there is, for people.
    pub(crate) fn describe_lack(&self, key: &AskKey, fit: &Fit, code: ReasonCode) -> String {
        if code == ReasonCode::NoPoolMapping {
            return match &key.pool {
                Some(pool) => format!("topic `{}` is not given to the pool `{pool}`, which the job prefers", key.topic),
                None => format!("topic `{}` is not given to any pool", key.topic),
            };
        }
        let mut asks = format!("it asks for a runner of {}", one_of("pool", &fit.key.crew.pools));
        if !key.requires.is_empty() {
            asks += &format!(" that has {}", key.requires.join(" and "));
        }
        if !key.labels.is_empty() {
            let labels: Vec<String> = key.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            asks += &format!(" with {}", labels.join(" and "));
        }
        let counts = self.ready.counts(fit);
        let parts = [
            (fit.spared, "overloaded"),
            (counts.other_pool, "in other pools"),
            (counts.lack_capability, "without a capability"),
            (counts.other_labels, "with other labels"),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        match self.ready.connected {
            0 => format!("{asks}; there are no runners"),
            all => format!("{asks}; of {all} runners there are {}", parts.join(", ")),
        }
    }
}

fn one_of(what: &str, names: &[String]) -> String {
    format!("{what} {}", names.join(" or "))
}
