//! Deterministic simulation of whole shards in virtual time, from one seed: engines with their shells and a store,
//! clients, a policy, runners, a network, and the faults of all of them.
//!
//! A run has two phases. In the first, faults occur at rates drawn from the seed, and the `invariant_*` functions check
//! every commit, every answer and every dispatch. Then faults stop, and every job must end within a bounded time. The
//! same seed gives the same run, trace line by trace line.

mod approvers;
mod client;
mod cluster;
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

pub use cluster::{ClusterReport, Detections, measure, story_of_a_death};
pub use coverage::{Coverage, Fault};
pub use crash::{Crash, CrashReport, crash_every_commit};
pub use invariants::Violation;
pub use sabotage::{ClusterSabotage, Sabotage, WorkflowSabotage};

use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::Plan;
use rng::{Rng, mix};
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

/// Of so many seeds, one runs a cluster as well.
const CLUSTER_EVERY: u64 = 3;

/// Runs one seed: a world of shards and runners, and for some seeds a cluster.
pub fn run(seed: u64, options: &Options) -> Result<Report, Box<Failure>> {
    let report = finish(seed, World::new(seed, options.trace, options.sabotage))?;
    if !seed.is_multiple_of(CLUSTER_EVERY) || options.sabotage.is_some() {
        return Ok(report);
    }
    let cluster = run_cluster(seed, options)?;
    let mut coverage = report.coverage;
    coverage.merge(&cluster.coverage);
    Ok(Report {
        seed,
        events: report.events + cluster.events,
        jobs: report.jobs + cluster.jobs,
        trace_hash: mix(report.trace_hash) ^ cluster.trace_hash,
        trace_lines: report.trace_lines + cluster.trace_lines,
        coverage,
    })
}

/// Runs the cluster of a seed alone.
pub fn run_cluster(seed: u64, options: &Options) -> Result<Report, Box<Failure>> {
    let plan = Plan::draw(&mut Rng::new(mix(seed)));
    finish(seed, World::clustered(seed, plan, options.trace, options.sabotage))
}

fn finish(seed: u64, mut world: World) -> Result<Report, Box<Failure>> {
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
