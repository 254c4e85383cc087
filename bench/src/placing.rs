//! Finding runners for jobs that ask for some: through the whole engine, and through engine and store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use engine::{Config, Effect, Input, RequestId, Shard, Step, Submission};
use model::id::{Incarnation, NodeId, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::message::{Capacity, FromRunner, Profile, RunnerWord, Ticket, ToRunner};
use model::spec::{EchoRun, JobSpec, Lane, Run};
use model::time::Millis;
use store::{Embedded, Options, Store};

use crate::Scale;
use crate::report::{Report, Target};

const PLACING: &str = "placements, 10,000 runners with labels";
const WAKING: &str = "100,000 waiting jobs given to new runners";

const ZONES: u64 = 16;
const INPUTS_PER_STEP: usize = 256;
const START: Millis = Millis(1_800_000_000_000);
const SHARD: ShardId = ShardId(0);

/// The shell and all runners in one.
struct Bench {
    shard: Shard,
    step: Step,
    /// Absent where only the engine is measured.
    store: Option<Embedded>,
    sequences: Vec<u64>,
    words: VecDeque<(RunnerId, RunnerWord)>,
    /// Attempts that have started and end with the next step.
    running: Vec<(RunnerId, Ticket)>,
    keep_running: bool,
    placed: u64,
}

impl Bench {
    fn new(runners: u64, store: Option<Embedded>) -> anyhow::Result<Self> {
        let shards = Shards::new(1).ok_or_else(|| anyhow::anyhow!("one shard is possible"))?;
        let epoch = match &store {
            Some(store) => store.open_shard(SHARD, NodeId(1))?,
            None => model::id::Epoch(1),
        };
        Ok(Self {
            shard: Shard::new(Config::new(SHARD, shards), Arc::default(), epoch, START),
            step: Step::new(),
            store,
            sequences: vec![0; runners as usize],
            words: VecDeque::new(),
            running: Vec::new(),
            keep_running: false,
            placed: 0,
        })
    }

    fn arrive(&mut self, number: u64, slots: u32) {
        let label = |name: &str, value: String| (name.to_owned(), value);
        let labels = [label("zone", format!("z{}", number % ZONES)), label("name", format!("n{number}"))];
        let profile = Arc::new(Profile { labels: BTreeMap::from(labels), ..Profile::default() });
        let capacity = Capacity { process: 0, echo: slots, wasm: 0 };
        let here = RunnerWord::Here { capacity, profile, holding: Vec::new(), question: 0, oldest_kept: 1 };
        self.words.push_back((RunnerId(number), here));
    }

    fn next_word(&mut self) -> Option<Input> {
        let (runner, word) = self.words.pop_front()?;
        let sequence = &mut self.sequences[runner.0 as usize];
        *sequence += 1;
        Some(Input::Runner(FromRunner { runner, incarnation: Incarnation(1), sequence: *sequence, word }))
    }

    /// One step: words first, then new jobs while there is room for inputs. How many inputs it had.
    fn step(&mut self, jobs: &mut impl Iterator<Item = Submission>) -> anyhow::Result<usize> {
        let mut inputs = 0;
        while inputs < INPUTS_PER_STEP {
            let request = RequestId(inputs as u64);
            let input = match self.next_word() {
                Some(word) => word,
                None => match jobs.next() {
                    Some(job) => Input::Submit { request, jobs: vec![job] },
                    None => break,
                },
            };
            self.shard.handle(START, input, &mut self.step);
            inputs += 1;
        }
        self.finish()?;
        Ok(inputs)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.shard.flush(&mut self.step);
        if let Some(store) = &self.store
            && !self.step.batch.is_empty()
        {
            store.commit(SHARD, self.shard.epoch(), &self.step.batch)?;
        }
        for (runner, ticket) in self.running.drain(..) {
            let outcome = Box::new(Outcome::of(End::Succeeded));
            self.words.push_back((runner, RunnerWord::Ended { ticket, at: START, outcome }));
        }
        for effect in &self.step.effects {
            if let Effect::Send { runner, message: ToRunner::Run { ticket, .. }, .. } = effect {
                self.placed += 1;
                if !self.keep_running {
                    self.words.push_back((*runner, RunnerWord::Started { ticket: *ticket, at: START }));
                    self.running.push((*runner, *ticket));
                }
            }
        }
        self.step.clear();
        Ok(())
    }

    /// Everything that is said, and all that follows from it.
    fn settle(&mut self) -> anyhow::Result<()> {
        while self.step(&mut std::iter::empty())? > 0 {}
        while self.shard.next_tick() <= START {
            self.shard.handle(START, Input::Tick, &mut self.step);
            self.finish()?;
        }
        Ok(())
    }
}

fn asking(labels: &[(&str, String)]) -> Submission {
    let mut spec = JobSpec::new(Run::Echo(EchoRun::default()));
    spec.labels = labels.iter().map(|(name, value)| (format!("placement.{name}"), value.clone())).collect();
    Submission::new(spec.pack(), None)
}

/// Every job by zone, one in ten by name.
fn mixed(number: u64, runners: u64) -> Submission {
    let runner = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % runners;
    let zone = ("zone", format!("z{}", runner % ZONES));
    if number.is_multiple_of(10) { asking(&[zone, ("name", format!("n{runner}"))]) } else { asking(&[zone]) }
}

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if report.wants(PLACING) {
        placing(scale, report)?;
    }
    if report.wants(WAKING) {
        waking(scale, report)?;
    }
    Ok(())
}

fn placing(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let (runners, jobs) = (10_000, scale.of(500_000));
    let mut bench = Bench::new(runners, None)?;
    (0..runners).for_each(|number| bench.arrive(number, 10));
    bench.settle()?;
    // Made beforehand: what a client packs is not what the engine does.
    let prepared: Vec<Submission> = (0..jobs).map(|number| mixed(number, runners)).collect();
    let mut source = prepared.into_iter();
    let begin = Instant::now();
    while bench.step(&mut source)? > 0 {}
    let seconds = begin.elapsed().as_secs_f64();
    anyhow::ensure!(bench.placed == jobs && bench.shard.live_jobs() == 0, "{} of {jobs} were placed", bench.placed);
    let note = "submitted, placed, started and ended, records encoded; every job by zone, one in ten by name";
    report.absolute(PLACING, "jobs/s", jobs as f64 / seconds, Target::AtLeast(100_000.0), note);
    Ok(())
}

fn waking(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let (jobs, runners) = (scale.of(100_000), 1_000);
    let dir = tempfile::tempdir_in(".")?;
    let store = Embedded::open(&dir.path().join("data"), Options::default())?;
    let mut bench = Bench::new(runners, Some(store))?;
    bench.keep_running = true;
    let mut source = (0..jobs).map(|number| asking(&[("zone", format!("z{}", number % ZONES))]));
    while bench.step(&mut source)? > 0 {}
    anyhow::ensure!(bench.shard.load(Lane::Echo).0 as u64 == jobs, "all of them wait");
    let begin = Instant::now();
    (0..runners).for_each(|number| bench.arrive(number, 101));
    bench.settle()?;
    let seconds = begin.elapsed().as_secs_f64();
    anyhow::ensure!(bench.placed == jobs, "{} of {jobs} were given to a runner", bench.placed);
    let note = "1,000 runners come; every change is durable before a runner is told";
    report.absolute(WAKING, "s", seconds, Target::AtMost(2.0), note);
    Ok(())
}
