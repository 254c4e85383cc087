//! Attempts across a crash of their runner. Processes are children of a spawner, which usually survives: they continue
//! or end unattended, and the next incarnation of the runner recovers them. Other attempts die with the runner.

use model::job::End;
use model::message::{AttemptRef, RunnerMessage};
use model::spec::ExecutorKind;

use crate::coverage::Fault;
use crate::runner::AttemptPhase;
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
    pub(crate) fn orphan_attempts(&mut self, index: usize) {
        let dies = self.rng.chance(self.scenario.nemesis.spawner_dies);
        let links = std::mem::take(&mut self.runners[index].links);
        let mut survived = 0;
        for (shard, link) in links {
            let running = link.in_flight.into_iter().map(|(attempt_ref, phase)| (attempt_ref, Orphan::Running(phase)));
            let ended =
                link.ended.into_iter().filter_map(|(attempt_ref, end)| Some((attempt_ref, Orphan::Ended(end?))));
            for (attempt_ref, orphan) in running.chain(ended) {
                if dies || !self.is_process(attempt_ref) {
                    self.alive.remove(&attempt_ref);
                    continue;
                }
                survived += 1;
                self.runners[index].orphans.entry(shard).or_default().insert(attempt_ref, orphan);
            }
        }
        trace!(self, "{} leaves {survived} attempts to its spawner", self.runners[index].id);
        if survived > 0 {
            self.coverage.count_fault(Fault::SpawnerSurvived);
        } else if dies {
            self.coverage.count_fault(Fault::SpawnerDied);
        }
    }

    fn is_process(&self, attempt_ref: AttemptRef) -> bool {
        self.ledger.jobs.get(&attempt_ref.job).is_some_and(|known| known.record.executor == ExecutorKind::Process)
    }

    /// First messages of a new incarnation: it registers with its in-flight attempts and reports their starts and ends.
    pub(crate) fn recover_attempts(&mut self, index: usize, shard: usize) {
        let runner = &mut self.runners[index];
        let incarnation = runner.incarnation;
        let orphans = runner.orphans.remove(&shard).unwrap_or_default();
        runner.recovered.extend(orphans.keys());
        if let Some(link) = runner.links.get_mut(&shard) {
            for (attempt_ref, orphan) in &orphans {
                let phase = if let Orphan::Running(phase) = orphan { *phase } else { AttemptPhase::Started };
                link.in_flight.insert(*attempt_ref, phase);
            }
        }
        runner.send_register(shard, 0);
        for (attempt_ref, orphan) in orphans {
            match orphan {
                Orphan::Ended(end) => {
                    let result = self.result_of(attempt_ref);
                    self.runners[index].send_ended(shard, attempt_ref, end, result);
                }
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
        let incarnation = self.runners[index].incarnation;
        if let Some(phase) =
            self.runners[index].links.get_mut(&shard).and_then(|link| link.in_flight.get_mut(&attempt_ref))
        {
            // A stop request does not survive the crash: the shard repeats it.
            *phase = AttemptPhase::Started;
        }
        self.runners[index].push_message(shard, RunnerMessage::Started { attempt_ref, at: model::time::Millis(0) });
        if self.rng.chance(self.scenario.attempts.end_unattended) {
            self.coverage.count_fault(Fault::EndedUnattended);
            let (end, result) = (self.draw_end(attempt_ref), self.result_of(attempt_ref));
            self.runners[index].send_ended(shard, attempt_ref, end, result);
            self.alive.remove(&attempt_ref);
        } else {
            self.schedule_end(index, incarnation, shard, attempt_ref);
        }
    }
}
