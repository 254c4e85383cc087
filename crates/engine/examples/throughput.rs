//! How many inputs a shard takes in a second: `cargo run --release -p engine --example throughput [jobs] [room]`.
//!
//! Echo jobs, submitted one by one; a runner with room for so many at once says of each that it started and that
//! it ended. With little room the jobs pile up first: then this measures the order they wait in as well. Every 256 inputs are one step, flushed as if for a commit. Nothing is written anywhere.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Config, Effect, Input, RequestId, Shard, Step, Submission};
use model::id::{Epoch, Incarnation, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{Capacity, FromRunner, RunnerWord, Ticket, ToRunner};
use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;

const INPUTS_PER_STEP: usize = 256;
const RUNNER: RunnerId = RunnerId(1);
const START: Millis = Millis(1_767_225_600_000);

/// The shell and the runner in one.
struct Bench {
    shard: Shard,
    step: Step,
    sequence: u64,
    words: VecDeque<RunnerWord>,
    /// Attempts that have started and end with the next step.
    running: Vec<Ticket>,
    batch_bytes: usize,
    ended: u64,
}

impl Bench {
    fn new(room: u32) -> Option<Self> {
        let config = Config::new(ShardId(0), Shards::new(1)?);
        let capacity = Capacity { process: 0, echo: room, wasm: 0 };
        let here =
            RunnerWord::Here { capacity, profile: Arc::default(), holding: Vec::new(), question: 0, oldest_kept: 1 };
        Some(Self {
            shard: Shard::new(config, Arc::default(), Epoch(1), START),
            step: Step::new(),
            sequence: 0,
            words: VecDeque::from([here]),
            running: Vec::new(),
            batch_bytes: 0,
            ended: 0,
        })
    }

    fn next_word(&mut self) -> Option<Input> {
        let word = self.words.pop_front()?;
        self.sequence += 1;
        let (incarnation, sequence) = (Incarnation(1), self.sequence);
        Some(Input::Runner(FromRunner { runner: RUNNER, incarnation, sequence, word }))
    }

    /// One step: words first, then new jobs while there is room for inputs. Returns how many jobs it took.
    fn step(&mut self, now: Millis, template: &Submission, jobs_left: usize) -> (usize, usize) {
        let (mut inputs, mut submitted) = (0, 0);
        while inputs < INPUTS_PER_STEP {
            let input = match self.next_word() {
                Some(word) => word,
                None if submitted < jobs_left => {
                    submitted += 1;
                    Input::Submit { request: RequestId(submitted as u64), jobs: vec![template.clone()] }
                }
                None => break,
            };
            self.shard.handle(now, input, &mut self.step);
            inputs += 1;
        }
        self.shard.flush(&mut self.step);
        self.perform(now);
        (inputs, submitted)
    }

    fn perform(&mut self, now: Millis) {
        self.batch_bytes += self.step.batch.as_bytes().len();
        self.ended += self.step.ended.len() as u64;
        for ticket in self.running.drain(..) {
            let outcome = Outcome { result: Some(Json::null()), ..Outcome::of(End::Succeeded) };
            self.words.push_back(RunnerWord::Ended { ticket, at: now, outcome: Box::new(outcome) });
        }
        for effect in &self.step.effects {
            if let Effect::Send { message: ToRunner::Run { ticket, .. }, .. } = effect {
                self.words.push_back(RunnerWord::Started { ticket: *ticket, at: now });
                self.running.push(*ticket);
            }
        }
        self.step.clear();
    }
}

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this measures; the engine itself has no clock"
)]
fn main() {
    let jobs: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let room: u32 = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
    let Some(mut bench) = Bench::new(room) else { return };
    let spec = JobSpec::new(Run::Echo(EchoRun { value: Json::of(&"hello"), ..EchoRun::default() })).pack();
    let template = Submission::new(spec, None);
    let began = std::time::Instant::now();
    let (mut inputs, mut left, mut steps) = (0, jobs, 0u64);
    loop {
        // A step in a hundred microseconds, ten of them in a millisecond.
        let (handled, submitted) = bench.step(START + Millis(steps / 10), &template, left);
        if handled == 0 {
            break;
        }
        inputs += handled;
        left -= submitted;
        steps += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    let bytes = bench.batch_bytes / bench.ended.max(1) as usize;
    println!("{inputs} inputs in {seconds:.3} s: {:.0} inputs/s, {bytes} bytes per job", inputs as f64 / seconds);
    println!("{} of {jobs} jobs ended, {} are left", bench.ended, bench.shard.live_jobs());
}
