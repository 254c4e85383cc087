//! What becomes of attempts when their runner crashes. Processes are children of a spawner, which usually survives: they
//! run on, end unattended, and are found again by the runner's next incarnation. Everything else dies with the runner.

use model::job::End;
use model::message::{RunnerWord, Ticket};
use model::spec::Lane;

use crate::coverage::Fault;
use crate::runner::Held;
use crate::world::{Event, World, trace};

/// An attempt without a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Alive(Held),
    /// Its end was not known to be committed.
    Ended(End),
}

impl World {
    /// Hands what outlives a crash to the spawner, if that survives as well.
    pub(crate) fn outlive_crash(&mut self, index: usize) {
        let dies = self.rng.chance(self.plan.nemesis.spawner_dies);
        let links = std::mem::take(&mut self.runners[index].links);
        let mut survived = 0;
        for (shard, link) in links {
            let alive = link.held.into_iter().map(|(ticket, held)| (ticket, Kept::Alive(held)));
            let ended = link.ended.into_iter().filter_map(|(ticket, end)| Some((ticket, Kept::Ended(end?))));
            for (ticket, kept) in alive.chain(ended) {
                if dies || !self.is_process(ticket) {
                    self.alive.remove(&ticket);
                    continue;
                }
                survived += 1;
                self.runners[index].kept.entry(shard).or_default().insert(ticket, kept);
            }
        }
        trace!(self, "{} leaves {survived} attempts behind", self.runners[index].id);
        if survived > 0 {
            self.coverage.fault(Fault::SpawnerSurvived);
        } else if dies {
            self.coverage.fault(Fault::SpawnerDied);
        }
    }

    fn is_process(&self, ticket: Ticket) -> bool {
        self.ledger.jobs.get(&ticket.job).is_some_and(|known| known.record.lane == Lane::Process)
    }

    /// The first words of a new incarnation: what it has in hand, and then what became of that.
    pub(crate) fn find_what_is_alive(&mut self, index: usize, shard: usize) {
        let runner = &mut self.runners[index];
        let incarnation = runner.incarnation;
        let kept = runner.kept.remove(&shard).unwrap_or_default();
        runner.found.extend(kept.keys());
        if let Some(link) = runner.links.get_mut(&shard) {
            for (ticket, kept) in &kept {
                link.held.insert(*ticket, if let Kept::Alive(held) = kept { *held } else { Held::Started });
            }
        }
        runner.say_here(shard, 0);
        for (ticket, kept) in kept {
            match kept {
                Kept::Ended(end) => {
                    let result = self.result_of(ticket);
                    self.runners[index].say_ended(shard, ticket, end, result);
                }
                // Whether the spawner was told of it before the crash or is told now makes no difference to anyone.
                Kept::Alive(Held::Waiting) => {
                    let delay = self.rng.below(5);
                    self.after(delay, Event::AttemptStarts { runner: index, incarnation, shard, ticket });
                }
                Kept::Alive(Held::Started | Held::Stopping) => self.find_started(index, shard, ticket),
            }
        }
    }

    fn find_started(&mut self, index: usize, shard: usize, ticket: Ticket) {
        let incarnation = self.runners[index].incarnation;
        if let Some(held) = self.runners[index].links.get_mut(&shard).and_then(|link| link.held.get_mut(&ticket)) {
            // That it was asked to stop is forgotten: whoever wants it asks again.
            *held = Held::Started;
        }
        self.runners[index].say(shard, RunnerWord::Started { ticket, at: model::time::Millis(0) });
        if self.rng.chance(self.plan.attempts.end_unattended) {
            self.coverage.fault(Fault::EndedUnattended);
            let (end, result) = (self.draw_end(ticket), self.result_of(ticket));
            self.runners[index].say_ended(shard, ticket, end, result);
            self.alive.remove(&ticket);
        } else {
            self.attempt_runs(index, incarnation, shard, ticket);
        }
    }
}
