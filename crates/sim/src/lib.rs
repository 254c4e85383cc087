//! Deterministic simulation of whole shards in virtual time, from one seed: engines with their shells and a store,
//! clients, a policy, runners, a network, and the faults of all of them.
//!
//! A run has two phases. In the first, faults occur at rates drawn from the seed, and the `invariant_*` functions check
//! every commit, every answer and every dispatch. Then faults stop, and every job must end within a bounded time. The
//! same seed gives the same run, trace line by trace line.

mod approvers;
mod client;
mod coverage;
mod crash;
mod definitions;
mod exclusive;
mod failover;
mod host;
pub mod invariants;
mod ledger;
mod nemesis;
mod operators;
mod partitions;
mod plans;
mod policy;
mod readers;
mod rng;
mod runner;
mod sabotage;
mod scanner;
mod scenario;
mod signer;
mod spawner;
mod trace;
mod workflow_clients;
mod workload;
mod world;

pub use coverage::{Coverage, Fault};
pub use crash::{Crash, CrashReport, crash_every_commit};
pub use sabotage::{Sabotage, WorkflowSabotage};

use std::panic::{AssertUnwindSafe, catch_unwind};

use invariants::Violation;
use world::World;

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Print the trace.
    pub trace: bool,
    /// Violate a rule deliberately. Tests the invariants.
    pub sabotage: Option<Sabotage>,
}

/// A run without violations.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    pub events: u64,
    pub jobs: usize,
    /// Hash of all trace lines; equal for equal runs.
    pub trace_hash: u64,
    pub trace_lines: u64,
    pub coverage: Coverage,
}

/// A run that violated an invariant.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
    pub trace_hash: u64,
    pub last_lines: Vec<String>,
}

/// Runs one seed.
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

/// Runs the world. A panic counts as a violation.
fn outcome_of(world: &mut World) -> Result<u64, Violation> {
    catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Violation { invariant: "nothing_panics", detail: text.unwrap_or_default() })
    })
}
