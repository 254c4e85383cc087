//! Throughput of a shard in inputs per second: `cargo run --release -p engine --example throughput [jobs] [slots]`.
//!
//! Echo jobs, submitted one by one. A runner with that many slots reports the start and the end of each. With few slots
//! jobs pile up, so this also measures the wait queues. Every 256 inputs are one step, flushed as for a commit. Nothing
//! is written.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Config, Effect, Input, RequestId, Shard, Step, Submission};
use model::id::{Epoch, Incarnation, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{AttemptRef, Capacity, FromRunner, RunnerHeader, RunnerMessage, ShardMessage, ToRunner};
use model::spec::{EchoRun, JobSpec, Run};
use model::time::{Millis, Now};

const INPUTS_PER_STEP: usize = 256;
const RUNNER: RunnerId = RunnerId(1);
const START: Millis = Millis(1_767_225_600_000);

/// Shell and runner.
struct Bench {
    shard: Shard,
    step: Step,
    sequence: u64,
    messages: VecDeque<RunnerMessage>,
    /// Started attempts; they end with the next step.
    running: Vec<AttemptRef>,
    batch_bytes: usize,
    ended: u64,
}

impl Bench {
    fn new(room: u32) -> Option<Self> {
        let config = Config::new(ShardId(0), Shards::new(1)?);
        let capacity = Capacity { process: 0, echo: room, wasm: 0 };
        let register = RunnerMessage::Register {
            capacity,
            profile: Arc::default(),
            in_flight: Vec::new(),
            request: 0,
            oldest_kept: 1,
        };
        Some(Self {
            shard: Shard::new(config, Arc::default(), Epoch(1), Now::both(START)),
            step: Step::new(),
            sequence: 0,
            messages: VecDeque::from([register]),
            running: Vec::new(),
            batch_bytes: 0,
            ended: 0,
        })
    }

    fn next_message(&mut self) -> Option<Input> {
        let message = self.messages.pop_front()?;
        self.sequence += 1;
        let (incarnation, sequence) = (Incarnation(1), self.sequence);
        Some(Input::Runner(FromRunner { runner: RUNNER, incarnation, sequence, message }))
    }

    /// One step: messages first, then new jobs up to the number of inputs. Returns the inputs and the submitted jobs.
    fn step(&mut self, now: Millis, template: &Submission, jobs_left: usize) -> (usize, usize) {
        let (mut inputs, mut submitted) = (0, 0);
        while inputs < INPUTS_PER_STEP {
            let input = match self.next_message() {
                Some(message) => message,
                None if submitted < jobs_left => {
                    submitted += 1;
                    Input::Submit { request: RequestId(submitted as u64), jobs: vec![template.clone()] }
                }
                None => break,
            };
            self.shard.handle(Now::both(now), input, &mut self.step);
            inputs += 1;
        }
        self.shard.flush(&mut self.step);
        self.perform(now);
        (inputs, submitted)
    }

    fn perform(&mut self, now: Millis) {
        self.batch_bytes += self.step.batch.as_bytes().len();
        self.ended += self.step.ended.len() as u64;
        for attempt_ref in self.running.drain(..) {
            let outcome = Outcome { result: Some(Json::null()), ..Outcome::of(End::Succeeded) };
            self.messages.push_back(RunnerMessage::Ended { attempt_ref, outcome: Box::new(outcome) });
        }
        let mut header = None;
        for effect in &self.step.effects {
            if let Effect::Send { message: ToRunner::Message { session, sequence, message, .. }, .. } = effect {
                header = Some((*session, *sequence));
                if let ShardMessage::Run { attempt_ref, .. } = message {
                    self.messages.push_back(RunnerMessage::Started { attempt_ref: *attempt_ref, at: now });
                    self.running.push(*attempt_ref);
                }
            }
        }
        self.step.clear();
        if let Some((session, received)) = header {
            let header = RunnerHeader { runner: RUNNER, incarnation: Incarnation(1), session, received, at: now };
            self.shard.handle(Now::both(now), Input::RunnerHeader(header), &mut self.step);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark needs the clock; the engine itself has none"
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
        // A step every hundred microseconds.
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
