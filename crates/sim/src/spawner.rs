//! Attempts across a crash of their runner. Processes are children of a spawner, which usually survives: they continue
//! or end unattended, and the next incarnation of the runner recovers them. Other attempts die with the runner.

use link::{InFlight, Lease};
use model::job::End;
use model::message::AttemptRef;
use model::spec::ExecutorKind;
use model::time::Millis;

use crate::coverage::Fault;
use crate::runner::{AttemptPhase, Link};
use crate::world::{Event, World, trace};

/// An attempt whose runner is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphan {
    Running(AttemptPhase),
    /// Ended; the end is not known to be committed.
    Ended(End),
}

impl World {
    /// Leaves processes to the spawner if it survives the crash. All other attempts end.
    pub(crate) fn orphan_attempts(&mut self, index: usize, dies: bool) {
        let links = std::mem::take(&mut self.runners[index].links);
        let ends = std::mem::take(&mut self.runners[index].ends);
        let mut survived = 0;
        for (shard, link) in links {
            let running = link.in_flight().map(|(attempt_ref, it)| (attempt_ref, Orphan::Running(*it.value())));
            let ended = link.ended().filter_map(|it| Some((it, Orphan::Ended(*ends.get(&it)?))));
            for (attempt_ref, orphan) in running.chain(ended) {
                let lease = link.lease(attempt_ref).or_else(|| self.expired_lease(index, attempt_ref, orphan));
                if dies || !self.is_process(attempt_ref) {
                    if self.alive.remove(&attempt_ref) {
                        self.ended_before.insert(attempt_ref);
                    }
                    continue;
                }
                survived += 1;
                self.runners[index].orphan_leases.extend(lease.map(|lease| (attempt_ref, lease)));
                self.runners[index].orphans.entry(shard).or_default().insert(attempt_ref, orphan);
            }
        }
        self.watch_leases(index);
        trace!(self, "{} leaves {survived} attempts to its spawner", self.runners[index].id);
        if survived > 0 {
            self.coverage.count_fault(Fault::SpawnerSurvived);
        } else if dies {
            self.coverage.count_fault(Fault::SpawnerDied);
        }
    }

    /// The lease of an attempt that was being killed when its runner crashed: the spawner goes on with that.
    fn expired_lease(&self, index: usize, attempt_ref: AttemptRef, orphan: Orphan) -> Option<Lease> {
        let is_exclusive = self.ledger.jobs.get(&attempt_ref.job).is_some_and(|known| known.record.exclusive);
        let is_being_killed = is_exclusive && orphan == Orphan::Running(AttemptPhase::Stopping);
        is_being_killed.then(|| Lease { duration: Millis(0), until: self.steady(index) })
    }

    fn is_process(&self, attempt_ref: AttemptRef) -> bool {
        self.ledger.jobs.get(&attempt_ref.job).is_some_and(|known| known.record.executor == ExecutorKind::Process)
    }

    /// Opens the link of a new incarnation: it registers with its in-flight attempts and reports their starts and ends.
    pub(crate) fn recover_attempts(&mut self, index: usize, shard: usize) {
        let (now, capacity) = (self.steady(index), self.draw_capacity());
        let orphans = self.runners[index].orphans.remove(&shard).unwrap_or_default();
        let adopted = orphans.iter().map(|(attempt_ref, orphan)| {
            let executor = ExecutorKind::Process;
            // A stop request does not survive the crash: the shard repeats it.
            (
                *attempt_ref,
                match orphan {
                    Orphan::Running(AttemptPhase::Waiting) => InFlight::new(executor, AttemptPhase::Waiting),
                    Orphan::Running(AttemptPhase::Started | AttemptPhase::Stopping) | Orphan::Ended(_) => {
                        InFlight::started(executor, now, AttemptPhase::Started)
                    }
                },
            )
        });
        let runner = &mut self.runners[index];
        let incarnation = runner.incarnation;
        let link = Link::new(now, (runner.id, incarnation), capacity, crate::exclusive::profile(), adopted);
        runner.recovered.extend(orphans.keys());
        runner.links.insert(shard, link);
        self.recover_leases(index, shard, orphans.keys().copied());
        for (attempt_ref, orphan) in orphans {
            match orphan {
                Orphan::Ended(end) => self.end_attempt(index, shard, attempt_ref, end),
                // Not started before the crash: it starts now, which looks the same to the shard.
                Orphan::Running(AttemptPhase::Waiting) => {
                    let delay = self.rng.below(5);
                    self.after(delay, Event::AttemptStarts { runner: index, incarnation, shard, attempt_ref });
                }
                Orphan::Running(AttemptPhase::Started | AttemptPhase::Stopping) => {
                    self.recover_started(index, shard, attempt_ref)
                }
            }
        }
    }

    fn recover_started(&mut self, index: usize, shard: usize, attempt_ref: AttemptRef) {
        let (now, incarnation) = (self.steady(index), self.runners[index].incarnation);
        if let Some(link) = self.runners[index].links.get_mut(&shard) {
            link.send_started(now, attempt_ref, Millis(0));
        }
        if self.rng.chance(self.scenario.attempts.end_unattended) {
            self.coverage.count_fault(Fault::EndedUnattended);
            let end = self.draw_end(attempt_ref);
            self.end_attempt(index, shard, attempt_ref, end);
        } else {
            self.schedule_end(index, incarnation, shard, attempt_ref);
        }
    }
}
