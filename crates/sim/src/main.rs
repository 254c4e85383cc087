//! `cargo run --release -p sim -- --seeds N [--seed S] [--from F] [--threads N] [--trace] [--keep-going]
//! [--crash-every-commit]`

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use clap::Parser;
use sim::{Coverage, Failure, Options, Report};

/// With so many seeds every fault must have happened at least once.
const SEEDS_FOR_FULL_COVERAGE: u64 = 200;

/// Runs whole shards in virtual time from seeds, with everything going wrong that can.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds to run [default: 200, or 1 with --seed]
    #[arg(long)]
    seeds: Option<u64>,
    /// Run this seed; with --seeds, begin with it
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Print everything that happens
    #[arg(long)]
    trace: bool,
    /// Go on after a seed that fails, with one line for each
    #[arg(long)]
    keep_going: bool,
    /// How many seeds run at the same time [default: one on each core]
    #[arg(long)]
    threads: Option<usize>,
    /// Instead: run a small workflow of each seed with a crash before and after each of its commits
    #[arg(long)]
    crash_every_commit: bool,
}

/// Runs seeds, several at the same time, and hands each one's outcome over until it is told to stop.
#[expect(clippy::disallowed_methods, reason = "each seed is a world of its own: none can tell how many run beside it")]
fn run_seeds(
    seeds: std::ops::Range<u64>,
    threads: usize,
    options: &Options,
    mut take: impl FnMut(u64, Result<Report, Box<Failure>>) -> bool,
) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        // Whoever is too far ahead waits, so that an early stop wastes little.
        let (sender, outcomes) = mpsc::sync_channel(threads);
        for _ in 0..threads {
            let (sender, next, end) = (sender.clone(), &next, seeds.end);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || sender.send((seed, sim::run(seed, options))).is_err() {
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
    let seeds = arguments.seeds.unwrap_or(if arguments.seed.is_some() { 1 } else { SEEDS_FOR_FULL_COVERAGE });
    let options = Options { trace: arguments.trace, sabotage: None };
    let range = first..first.saturating_add(seeds);
    if arguments.crash_every_commit {
        return crash_everywhere(range);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A trace of several at once is of no use to anybody.
    let threads = if arguments.trace { 1 } else { arguments.threads.unwrap_or(cores).max(1) };
    let mut progress = Progress::new(seeds);
    let mut coverage = Coverage::default();
    let (mut jobs, mut events, mut failed) = (0, 0, 0);
    run_seeds(range, threads, &options, |seed, outcome| {
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
                    show(&failure);
                    return false;
                }
                say(&format!("Seed {seed} violates {}: {}", failure.violation.invariant, failure.violation.detail));
            }
        }
        true
    });
    if failed > 0 && !arguments.keep_going {
        return ExitCode::FAILURE;
    }
    progress.clear();
    let passed = seeds - failed;
    let plural = if passed == 1 { "" } else { "s" };
    say(&format!("{passed} seed{plural} passed: {jobs} jobs, {events} events"));
    for line in coverage.lines() {
        say(&line);
    }
    let missing = coverage.missing();
    if seeds >= SEEDS_FOR_FULL_COVERAGE && !missing.is_empty() {
        say(&format!("\nNever seen, so nothing is proven about it: {}", missing.join(", ")));
        return ExitCode::FAILURE;
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The same run again and again, each time with a crash at another commit.
fn crash_everywhere(seeds: std::ops::Range<u64>) -> ExitCode {
    for seed in seeds {
        match sim::crash_every_commit(seed) {
            Ok(report) => say(&format!("Seed {seed}: {} commits, {} runs, the same end", report.commits, report.runs)),
            Err(failure) => {
                show(&failure);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn show(failure: &Failure) {
    let Failure { seed, violation, trace_hash, last_lines } = failure;
    say(&format!("The last lines of seed {seed}:"));
    for line in last_lines {
        say(line);
    }
    say(&format!("\nSeed {seed} violates {}: {}", violation.invariant, violation.detail));
    say(&format!("Run it again with --seed {seed} (trace {trace_hash:016x})"));
}

/// A reader that has seen enough, such as `head`, is no reason to panic.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// How far it has come: in place on a terminal, a line now and then elsewhere.
struct Progress {
    seeds: u64,
    passed: u64,
    in_place: bool,
}

impl Progress {
    fn new(seeds: u64) -> Self {
        Self { seeds, passed: 0, in_place: std::io::stdout().is_terminal() }
    }

    fn passed(&mut self) {
        self.passed += 1;
        if self.in_place {
            print!("\r{} of {} seeds passed", self.passed, self.seeds);
            // Progress that cannot be shown is no reason to stop.
            let _ = std::io::stdout().flush();
        } else if self.passed.is_multiple_of((self.seeds / 8).max(1)) && self.passed < self.seeds {
            say(&format!("{} of {} seeds passed", self.passed, self.seeds));
        }
    }

    /// Makes room for what comes next.
    fn clear(&self) {
        if self.in_place && self.passed > 0 {
            print!("\r\x1b[K");
        }
    }
}
