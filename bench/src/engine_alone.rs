//! The engine alone: how many inputs it handles in a second, records encoded, nothing stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Config, Effect, Input, RequestId, Shard, Step, Submission};
use model::id::{Epoch, Incarnation, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{Capacity, FromRunner, RunnerWord, ToRunner};
use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;

use crate::Scale;
use crate::report::{Report, Target};

const NAME: &str = "engine alone, inputs";
const ROUND: u64 = 256;

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.wants(NAME) {
        return Ok(());
    }
    let shards = Shards::new(1).ok_or_else(|| anyhow::anyhow!("one shard is possible"))?;
    let mut bench = Bench {
        shard: Shard::new(Config::new(ShardId(0), shards), Arc::default(), Epoch(1), Millis(1_800_000_000_000)),
        step: Step::new(),
        sequence: 0,
        inputs: 0,
        spent: Duration::ZERO,
    };
    bench.word(RunnerWord::Here {
        capacity: Capacity { process: 0, echo: 1_000_000, wasm: 0 },
        profile: Arc::default(),
        holding: Vec::new(),
        question: 0,
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
        "submit, started, ended; flushed every 256",
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
            self.shard.handle(now, input, &mut self.step);
        }
        self.shard.flush(&mut self.step);
        self.spent += begin.elapsed();
    }

    fn word(&mut self, word: RunnerWord) {
        let input = self.spoken(word);
        self.handle(Millis(1_800_000_000_000), vec![input]);
        self.step.clear();
    }

    fn spoken(&mut self, word: RunnerWord) -> Input {
        self.sequence += 1;
        let (runner, incarnation) = (RunnerId(1), Incarnation(1));
        Input::Runner(FromRunner { runner, incarnation, sequence: self.sequence, word })
    }

    /// Submits jobs, then says for each that it has started and ended. Making the inputs is not counted.
    fn round(&mut self, round: u64, spec: &model::spec::PackedSpec, value: &Json) {
        let now = Millis(1_800_000_000_000 + round);
        let submit = |index| Input::Submit {
            request: RequestId(round * ROUND + index),
            jobs: vec![Submission::new(spec.clone(), None)],
        };
        self.handle(now, (0..ROUND).map(submit).collect());
        let effects = std::mem::take(&mut self.step.effects);
        self.step.clear();
        let mut words = Vec::new();
        for effect in effects {
            if let Effect::Send { message: ToRunner::Run { ticket, .. }, .. } = effect {
                words.push(self.spoken(RunnerWord::Started { ticket, at: now }));
                let outcome = Box::new(Outcome { result: Some(value.clone()), ..Outcome::of(End::Succeeded) });
                words.push(self.spoken(RunnerWord::Ended { ticket, at: now, outcome }));
            }
        }
        self.handle(now, words);
        self.step.clear();
    }
}
