//! Throughput of placement by labels: with the engine only, and with engine and store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use engine::{Config, Effect, Input, RequestId, Shard, Step, Submission};
use model::id::{Incarnation, NodeId, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::message::{AttemptRef, Capacity, FromRunner, Profile, RunnerHeader, RunnerMessage, ShardMessage, ToRunner};
use model::spec::{EchoRun, ExecutorKind, JobSpec, Run};
use model::time::{Millis, Now};
use store::{Embedded, FencingToken, Options, ShardOwner, Store};

use crate::Scale;
use crate::report::{Report, Target};

const PLACEMENT: &str = "placement by label, 10,000 runners";
const BACKLOG: &str = "dispatch of 100,000 waiting jobs to new runners";

const ZONES: u64 = 16;
const INPUTS_PER_STEP: usize = 256;
const START: Millis = Millis(1_800_000_000_000);
const SHARD: ShardId = ShardId(0);

/// Drives a shard: the shell and all runners in one.
struct Bench {
    shard: Shard,
    step: Step,
    /// `None` where only the engine is measured.
    store: Option<(Embedded, FencingToken)>,
    sequences: Vec<u64>,
    messages: VecDeque<(RunnerId, RunnerMessage)>,
    /// Acknowledgements of the messages of the last step, one for each runner.
    headers: BTreeMap<RunnerId, RunnerHeader>,
    /// Started attempts; they end in the next step.
    running: Vec<(RunnerId, AttemptRef)>,
    attempts_never_end: bool,
    placed: u64,
}

impl Bench {
    fn new(runners: u64, store: Option<Embedded>) -> anyhow::Result<Self> {
        let shards = Shards::new(1).ok_or_else(|| anyhow::anyhow!("1 is not a valid number of shards"))?;
        let owner = ShardOwner { node: NodeId(1), nonce: 1 };
        let store = match store {
            Some(store) => {
                let token = store.take_over(SHARD, owner)?;
                Some((store, token))
            }
            None => None,
        };
        let epoch = store.as_ref().map_or(model::id::Epoch(1), |(_, token)| token.epoch);
        Ok(Self {
            shard: Shard::new(Config::new(SHARD, shards), Arc::default(), epoch, Now::both(START)),
            step: Step::new(),
            store,
            sequences: vec![0; runners as usize],
            messages: VecDeque::new(),
            headers: BTreeMap::new(),
            running: Vec::new(),
            attempts_never_end: false,
            placed: 0,
        })
    }

    fn register(&mut self, number: u64, slots: u32) {
        let label = |name: &str, value: String| (name.to_owned(), value);
        let labels = [label("zone", format!("z{}", number % ZONES)), label("name", format!("n{number}"))];
        let profile = Arc::new(Profile { labels: BTreeMap::from(labels), ..Profile::default() });
        let capacity = Capacity { process: 0, echo: slots, wasm: 0 };
        let register = RunnerMessage::Register { capacity, profile, in_flight: Vec::new(), request: 0, oldest_kept: 1 };
        self.messages.push_back((RunnerId(number), register));
    }

    fn next_message(&mut self) -> Option<Input> {
        let (runner, message) = self.messages.pop_front()?;
        let sequence = &mut self.sequences[runner.0 as usize];
        *sequence += 1;
        Some(Input::Runner(FromRunner { runner, incarnation: Incarnation(1), sequence: *sequence, message }))
    }

    /// One step: runner messages first, then new jobs up to the limit of inputs. Returns the number of inputs.
    fn step(&mut self, jobs: &mut impl Iterator<Item = Submission>) -> anyhow::Result<usize> {
        let mut inputs = 0;
        for header in std::mem::take(&mut self.headers).into_values() {
            self.shard.handle(Now::both(START), Input::RunnerHeader(header), &mut self.step);
        }
        while inputs < INPUTS_PER_STEP {
            let request = RequestId(inputs as u64);
            let input = match self.next_message() {
                Some(message) => message,
                None => match jobs.next() {
                    Some(job) => Input::Submit { request, jobs: vec![job] },
                    None => break,
                },
            };
            self.shard.handle(Now::both(START), input, &mut self.step);
            inputs += 1;
        }
        self.finish()?;
        Ok(inputs)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.shard.flush(&mut self.step);
        if let Some((store, token)) = &mut self.store
            && !self.step.batch.is_empty()
        {
            store.commit(token, &self.step.batch)?;
        }
        for (runner, attempt_ref) in self.running.drain(..) {
            let outcome = Box::new(Outcome::of(End::Succeeded));
            self.messages.push_back((runner, RunnerMessage::Ended { attempt_ref, outcome }));
        }
        for effect in &self.step.effects {
            let Effect::Send { runner, incarnation, message } = effect else { continue };
            let ToRunner::Message { session, sequence, message, .. } = message else { continue };
            let (runner, incarnation, session, received) = (*runner, *incarnation, *session, *sequence);
            self.headers.insert(runner, RunnerHeader { runner, incarnation, session, received, at: START });
            if let ShardMessage::Run { attempt_ref, .. } = message {
                self.placed += 1;
                if !self.attempts_never_end {
                    self.messages.push_back((runner, RunnerMessage::Started { attempt_ref: *attempt_ref, at: START }));
                    self.running.push((runner, *attempt_ref));
                }
            }
        }
        self.step.clear();
        Ok(())
    }

    /// Handles all messages, and all ticks due by then.
    fn settle(&mut self) -> anyhow::Result<()> {
        while self.step(&mut std::iter::empty())? > 0 {}
        while self.shard.tick_in(Now::both(START)) == Millis(0) {
            self.shard.handle(Now::both(START), Input::Tick, &mut self.step);
            self.finish()?;
        }
        Ok(())
    }
}

fn job_with_labels(labels: &[(&str, String)]) -> Submission {
    let mut spec = JobSpec::new(Run::Echo(EchoRun::default()));
    spec.labels = labels.iter().map(|(name, value)| (format!("placement.{name}"), value.clone())).collect();
    Submission::new(spec.pack(), None)
}

/// A job that requires a zone; one in ten also requires a runner name.
fn mixed_job(number: u64, runners: u64) -> Submission {
    let runner = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % runners;
    let zone = ("zone", format!("z{}", runner % ZONES));
    if number.is_multiple_of(10) {
        job_with_labels(&[zone, ("name", format!("n{runner}"))])
    } else {
        job_with_labels(&[zone])
    }
}

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if report.selects(PLACEMENT) {
        placement(scale, report)?;
    }
    if report.selects(BACKLOG) {
        backlog(scale, report)?;
    }
    Ok(())
}

fn placement(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let (runners, jobs) = (10_000, scale.of(500_000));
    let mut bench = Bench::new(runners, None)?;
    (0..runners).for_each(|number| bench.register(number, 10));
    bench.settle()?;
    // Built beforehand: packing is the client's work, not the engine's.
    let prepared: Vec<Submission> = (0..jobs).map(|number| mixed_job(number, runners)).collect();
    let mut source = prepared.into_iter();
    let begin = Instant::now();
    while bench.step(&mut source)? > 0 {}
    let seconds = begin.elapsed().as_secs_f64();
    anyhow::ensure!(
        bench.placed == jobs && bench.shard.live_jobs() == 0,
        "{} of {jobs} jobs were placed",
        bench.placed
    );
    let note =
        "submitted, placed, started and ended, records encoded; all jobs require a zone, one in ten a runner name";
    report.absolute(PLACEMENT, "jobs/s", jobs as f64 / seconds, Target::AtLeast(100_000.0), note);
    Ok(())
}

fn backlog(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let (jobs, runners) = (scale.of(100_000), 1_000);
    let dir = tempfile::tempdir_in(".")?;
    let store = Embedded::open(&dir.path().join("data"), Options::default())?;
    let mut bench = Bench::new(runners, Some(store))?;
    bench.attempts_never_end = true;
    let mut source = (0..jobs).map(|number| job_with_labels(&[("zone", format!("z{}", number % ZONES))]));
    while bench.step(&mut source)? > 0 {}
    anyhow::ensure!(bench.shard.load(ExecutorKind::Echo).0 as u64 == jobs, "some jobs are not waiting");
    let begin = Instant::now();
    (0..runners).for_each(|number| bench.register(number, 101));
    bench.settle()?;
    let seconds = begin.elapsed().as_secs_f64();
    anyhow::ensure!(bench.placed == jobs, "{} of {jobs} jobs were dispatched", bench.placed);
    let note = "1,000 runners register; every dispatch is durable before it is sent";
    report.absolute(BACKLOG, "s", seconds, Target::AtMost(2.0), note);
    Ok(())
}
