//! Command line of the simulation: `cargo run --release -p sim -- --seeds N [--seed S] [--from F] [--threads N]
//! [--minutes N] [--trace] [--keep-going] [--clusters] [--crash-every-commit] [--nodes N]`

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clap::Parser;
use sim::{Coverage, Failure, Options, Report};

/// From this number of seeds on, every fault must occur at least once.
const SEEDS_FOR_FULL_COVERAGE: u64 = 200;

/// Simulates whole shards in virtual time, with faults, from seeds.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of seeds to run [default: 200, or 1 with --seed]
    #[arg(long)]
    seeds: Option<u64>,
    /// Run this seed; with --seeds, start with it
    #[arg(long)]
    seed: Option<u64>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Run as many seeds as fit into this time
    #[arg(long, conflicts_with = "seeds")]
    minutes: Option<u64>,
    /// Print the trace
    #[arg(long)]
    trace: bool,
    /// Continue after a failing seed, with one line per failure
    #[arg(long)]
    keep_going: bool,
    /// Number of seeds in parallel [default: one per core]
    #[arg(long)]
    threads: Option<usize>,
    /// Instead: run a small workflow of each seed with a crash before and after each commit
    #[arg(long)]
    crash_every_commit: bool,
    /// Run the clusters of all seeds, and nothing else
    #[arg(long)]
    clusters: bool,
    /// Instead: measure how clusters of this size find dead nodes, and print the timeline of a death
    #[arg(long)]
    nodes: Option<usize>,
}

/// Packet loss of the measured clusters, in percent.
const MEASURED_LOSSES: [u32; 4] = [0, 1, 10, 30];
/// Seeds of each measurement.
const MEASURED_SEEDS: u64 = 2;
/// Up to this size, the timeline has the view of every node.
const NODES_SHOWN_MAX: usize = 20;

/// Runs seeds in parallel and passes each outcome to `take`, until that returns false.
#[expect(clippy::disallowed_methods, reason = "seeds share no state: parallel runs do not affect each other")]
fn run_seeds(
    seeds: std::ops::Range<u64>,
    threads: usize,
    run: impl Fn(u64) -> Result<Report, Box<Failure>> + Sync,
    mut take: impl FnMut(u64, Result<Report, Box<Failure>>) -> bool,
) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        // Bounded channel: threads do not run far ahead of an early stop.
        let (sender, outcomes) = mpsc::sync_channel(threads);
        for _ in 0..threads {
            let (sender, next, end, run) = (sender.clone(), &next, seeds.end, &run);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || sender.send((seed, run(seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (seed, outcome) in outcomes {
            if !take(seed, outcome) {
                next.store(seeds.end, Ordering::Relaxed);
                return;
            }
        }
    });
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let first = arguments.seed.unwrap_or(arguments.from);
    let seeds = match (arguments.seeds, arguments.minutes, arguments.seed) {
        (Some(seeds), _, _) => seeds,
        (None, Some(_), _) => u64::MAX - first,
        (None, None, Some(_)) => 1,
        (None, None, None) => SEEDS_FOR_FULL_COVERAGE,
    };
    let elapsed = stopwatch();
    let time = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let options = Options { trace: arguments.trace, sabotage: None };
    let range = first..first.saturating_add(seeds);
    if arguments.crash_every_commit {
        return crash_every_commit(range);
    }
    if let Some(nodes) = arguments.nodes {
        return measure(nodes, first..first + arguments.seeds.unwrap_or(MEASURED_SEEDS));
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // Traces of parallel seeds would interleave.
    let threads = if arguments.trace { 1 } else { arguments.threads.unwrap_or(cores).max(1) };
    let mut progress = Progress::new(seeds, arguments.minutes.is_none());
    let mut coverage = Coverage::default();
    let (mut jobs, mut events, mut failed) = (0, 0, 0);
    let run = |seed| if arguments.clusters { sim::run_cluster(seed, &options) } else { sim::run(seed, &options) };
    run_seeds(range, threads, run, |seed, outcome| {
        match outcome {
            Ok(report) => {
                coverage.merge(&report.coverage);
                jobs += report.jobs;
                events += report.events;
                progress.passed();
            }
            Err(failure) => {
                progress.clear();
                failed += 1;
                if !arguments.keep_going {
                    print_failure(&failure);
                    return false;
                }
                print_line(&format!(
                    "Seed {seed} violates {}: {}",
                    failure.violation.invariant, failure.violation.detail
                ));
            }
        }
        time.is_none_or(|time| elapsed() < time)
    });
    if failed > 0 && !arguments.keep_going {
        return ExitCode::FAILURE;
    }
    progress.clear();
    let passed = progress.passed;
    let plural = if passed == 1 { "" } else { "s" };
    let per_second = passed as f64 / elapsed().as_secs_f64();
    print_line(&format!("{passed} seed{plural} passed: {jobs} jobs, {events} events, {per_second:.1} seeds/s"));
    for line in coverage.lines() {
        print_line(&line);
    }
    let missing = coverage.missing();
    if passed >= SEEDS_FOR_FULL_COVERAGE && !arguments.clusters && !missing.is_empty() {
        print_line(&format!("\nNot covered by these seeds: {}", missing.join(", ")));
        return ExitCode::FAILURE;
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures the time of the whole run, not of the simulated world.
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "no seed depends on it")]
fn stopwatch() -> impl Fn() -> Duration {
    let started = std::time::Instant::now();
    move || started.elapsed()
}

/// Repeats the run of each seed with a crash at each commit in turn.
fn crash_every_commit(seeds: std::ops::Range<u64>) -> ExitCode {
    for seed in seeds {
        match sim::crash_every_commit(seed) {
            Ok(report) => print_line(&format!(
                "Seed {seed}: {} commits, {} runs, all with the same outcome",
                report.commits, report.runs
            )),
            Err(failure) => {
                print_failure(&failure);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Measures clusters with different losses of packets.
fn measure(nodes: usize, seeds: std::ops::Range<u64>) -> ExitCode {
    match sim::story_of_a_death(nodes, seeds.start) {
        Ok(story) => {
            print_line("A machine loses its power, as the cluster sees it:");
            let is_shown =
                |line: &&String| nodes <= NODES_SHOWN_MAX || !line.contains("  node_") || line.contains("dies");
            story.iter().filter(is_shown).for_each(|line| print_line(line));
        }
        Err(violation) => print_line(&format!("no timeline: {}", violation.detail)),
    }
    for loss in MEASURED_LOSSES {
        match sim::measure(nodes, loss, seeds.clone()) {
            Ok(report) => print_line(&format!("\n{report}")),
            Err(violation) => {
                print_line(&format!("{loss} % loss violates {}: {}", violation.invariant, violation.detail));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn print_failure(failure: &Failure) {
    let Failure { seed, violation, trace_hash, last_lines } = failure;
    print_line(&format!("The last trace lines of seed {seed}:"));
    for line in last_lines {
        print_line(line);
    }
    print_line(&format!("\nSeed {seed} violates {}: {}", violation.invariant, violation.detail));
    print_line(&format!("Replay with --seed {seed} (trace hash {trace_hash:016x})"));
}

/// Prints a line. A closed pipe, such as to `head`, is ignored.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Progress output: updated in place on a terminal, otherwise one line per eighth of the seeds.
struct Progress {
    seeds: u64,
    /// Otherwise the time limits the run.
    limited: bool,
    passed: u64,
    in_place: bool,
}

impl Progress {
    fn new(seeds: u64, limited: bool) -> Self {
        Self { seeds, limited, passed: 0, in_place: std::io::stdout().is_terminal() }
    }

    fn passed(&mut self) {
        self.passed += 1;
        if self.in_place && !self.limited {
            print!("\r{} seeds passed", self.passed);
            let _ = std::io::stdout().flush();
        } else if self.in_place {
            print!("\r{} of {} seeds passed", self.passed, self.seeds);
            // Errors of progress output are ignored.
            let _ = std::io::stdout().flush();
        } else if self.passed.is_multiple_of((self.seeds / 8).max(1)) && self.passed < self.seeds {
            print_line(&format!("{} of {} seeds passed", self.passed, self.seeds));
        }
    }

    /// Clears the progress line.
    fn clear(&self) {
        if self.in_place && self.passed > 0 {
            print!("\r\x1b[K");
        }
    }
}
