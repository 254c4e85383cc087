//! Whole shards in virtual time, from one seed: engines in their shells over a store, clients, a policy, runners and a
//! network, and everything that can go wrong between them.
//!
//! A run has two phases. In the first anything may fail, at rates that the seed has drawn, and the `invariant_*`
//! functions look at every commit, every answer and every order to a runner. Then faults stop, and within a bounded
//! time every job must have ended. The same seed gives the very same run, line by line.

mod approvers;
mod client;
mod coverage;
mod crash;
mod definitions;
mod flow_clients;
mod host;
pub mod invariants;
mod ledger;
mod nemesis;
mod operators;
mod plan;
mod policy;
mod rehydrate;
mod rng;
mod runner;
mod sabotage;
mod scanner;
mod spawner;
mod trace;
mod workload;
mod world;

pub use coverage::{Coverage, Fault};
pub use crash::{Crash, CrashReport, crash_every_commit};
pub use sabotage::{FlowSabotage, Sabotage};

use std::panic::{AssertUnwindSafe, catch_unwind};

use invariants::Violation;
use world::World;

/// How a seed is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Print every line of the trace.
    pub trace: bool,
    /// Break a rule on purpose: for testing the invariants.
    pub sabotage: Option<Sabotage>,
}

/// A run in which everything held.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    pub events: u64,
    pub jobs: usize,
    /// Of every line of the trace: equal for equal runs.
    pub trace_hash: u64,
    pub trace_lines: u64,
    pub coverage: Coverage,
}

/// A run in which something did not.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
    pub trace_hash: u64,
    pub last_lines: Vec<String>,
}

/// Runs one seed to its end.
pub fn run(seed: u64, options: &Options) -> Result<Report, Box<Failure>> {
    let mut world = World::new(seed, options.trace, options.sabotage);
    let outcome = outcome_of(&mut world);
    let World { trace, coverage, ledger, .. } = world;
    let trace_hash = trace.hash();
    match outcome {
        Ok(events) => {
            let (jobs, trace_lines) = (ledger.jobs.len(), trace.count());
            Ok(Report { seed, events, jobs, trace_hash, trace_lines, coverage })
        }
        Err(violation) => Err(Box::new(Failure { seed, violation, trace_hash, last_lines: trace.last_lines() })),
    }
}

/// A panic is as bad as any violation, and its seed is worth as much.
fn outcome_of(world: &mut World) -> Result<u64, Violation> {
    catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Violation { invariant: "nothing_panics", detail: text.unwrap_or_default() })
    })
}
