//! Throughput of the engine without a store: inputs per second, records encoded but not committed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Config, Effect, Input, RequestId, Shard, Step, Submission};
use model::id::{Epoch, Incarnation, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{Capacity, FromRunner, RunnerHeader, RunnerMessage, ShardMessage, ToRunner};
use model::spec::{EchoRun, JobSpec, Run};
use model::time::{Millis, Now};

use crate::Scale;
use crate::report::{Report, Target};

const NAME: &str = "engine inputs, without a store";
const ROUND: u64 = 256;

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.selects(NAME) {
        return Ok(());
    }
    let shards = Shards::new(1).ok_or_else(|| anyhow::anyhow!("1 is not a valid number of shards"))?;
    let mut bench = Bench {
        shard: Shard::new(
            Config::new(ShardId(0), shards),
            Arc::default(),
            Epoch(1),
            Now::both(Millis(1_800_000_000_000)),
        ),
        step: Step::new(),
        sequence: 0,
        inputs: 0,
        spent: Duration::ZERO,
    };
    bench.deliver(RunnerMessage::Register {
        capacity: Capacity { process: 0, echo: 1_000_000, wasm: 0 },
        profile: Arc::default(),
        in_flight: Vec::new(),
        request: 0,
        oldest_kept: 1,
    });
    let value = Json::of(&"x".repeat(100));
    let spec = JobSpec::new(Run::Echo(EchoRun { value: value.clone(), ..EchoRun::default() })).pack();
    for round in 0..scale.of(1_000_000) / ROUND {
        bench.round(round, &spec, &value);
    }
    report.absolute(
        NAME,
        "inputs/s",
        bench.inputs as f64 / bench.spent.as_secs_f64(),
        Target::AtLeast(1_000_000.0),
        "submit, started, ended; one flush per 256",
    );
    Ok(())
}

struct Bench {
    shard: Shard,
    step: Step,
    sequence: u64,
    inputs: u64,
    spent: Duration,
}

impl Bench {
    fn handle(&mut self, now: Millis, inputs: Vec<Input>) {
        let begin = Instant::now();
        for input in inputs {
            self.inputs += 1;
            self.shard.handle(Now::both(now), input, &mut self.step);
        }
        self.shard.flush(&mut self.step);
        self.spent += begin.elapsed();
    }

    fn deliver(&mut self, message: RunnerMessage) {
        let input = self.runner_input(message);
        self.handle(Millis(1_800_000_000_000), vec![input]);
        self.step.clear();
    }

    fn runner_input(&mut self, message: RunnerMessage) -> Input {
        self.sequence += 1;
        let (runner, incarnation) = (RunnerId(1), Incarnation(1));
        Input::Runner(FromRunner { runner, incarnation, sequence: self.sequence, message })
    }

    /// Submits jobs, then reports each as started and ended. Building the inputs is not measured.
    fn round(&mut self, round: u64, spec: &model::spec::PackedSpec, value: &Json) {
        let now = Millis(1_800_000_000_000 + round);
        let submit = |index| Input::Submit {
            request: RequestId(round * ROUND + index),
            jobs: vec![Submission::new(spec.clone(), None)],
        };
        self.handle(now, (0..ROUND).map(submit).collect());
        let effects = std::mem::take(&mut self.step.effects);
        self.step.clear();
        let (mut messages, mut header) = (Vec::new(), None);
        for effect in effects {
            let Effect::Send { message: ToRunner::Message { session, sequence, message, .. }, .. } = effect else {
                continue;
            };
            let (runner, incarnation) = (RunnerId(1), Incarnation(1));
            header = Some(RunnerHeader { runner, incarnation, session, received: sequence, at: now });
            if let ShardMessage::Run { attempt_ref, .. } = message {
                messages.push(self.runner_input(RunnerMessage::Started { attempt_ref, at: now }));
                let outcome = Box::new(Outcome { result: Some(value.clone()), ..Outcome::of(End::Succeeded) });
                messages.push(self.runner_input(RunnerMessage::Ended { attempt_ref, outcome }));
            }
        }
        messages.extend(header.map(Input::RunnerHeader));
        self.handle(now, messages);
        self.step.clear();
    }
}
