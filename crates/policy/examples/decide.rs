//! Measures the latency of decisions, evaluated and cached, in wall-clock time and in thread CPU time.
//!
//! `cargo run --release -p policy --example decide [directory of rules]`

use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use model::json::Json;
use model::spec::{EchoRun, JobSpec, ProcessRun, Run};
use model::time::Millis;
use policy::{Cache, JobFacts, Policy};

const DECISIONS: usize = 100_000;
const NOW: Millis = Millis(1_767_787_200_000);

fn main() -> Result<(), Box<dyn Error>> {
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/policy");
    let directory = std::env::args().nth(1).map_or(example, PathBuf::from);
    let started = Instant::now();
    let policy = Policy::open(&directory, Cache::default(), NOW)?;
    println!("loaded in {:.1} ms; reads {}", started.elapsed().as_secs_f64() * 1e3, policy.status().reads.join(", "));
    for (name, spec) in [("echo", echo()), ("process", process()), ("needs approval", approval())] {
        let facts = JobFacts { spec: &spec, submitter: Some("someone@example.com"), queue: None };
        let rules = policy.rules();
        println!("{name}: {} by {}", rules.decide(&facts, NOW).verdict.as_str(), rules.decide(&facts, NOW).rule);
        measure("evaluated", || drop(black_box(rules.decide(&facts, NOW))));
        policy.decide(&facts, NOW);
        if policy.cached(&facts, NOW).is_some() {
            measure("cached", || drop(black_box(policy.cached(&facts, NOW))));
        }
    }
    Ok(())
}

fn echo() -> JobSpec {
    let value = Json::parse(br#"{"hello": "world", "numbers": [1, 2, 3]}"#).unwrap_or_default();
    JobSpec::new(Run::Echo(EchoRun { value, ..EchoRun::default() }))
}

fn process() -> JobSpec {
    let command = ["python3", "report.py", "--month", "7"].map(str::to_owned).to_vec();
    let env = (0..10).map(|number| (format!("VARIABLE_{number}"), "value".to_owned())).collect();
    let mut spec = JobSpec::new(Run::Process(ProcessRun { command, env, ..ProcessRun::default() }));
    spec.tenant = "guests".to_owned();
    spec.labels = [("env", "test"), ("team", "data")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    spec
}

fn approval() -> JobSpec {
    let mut spec = process();
    spec.topic = "deploy".to_owned();
    spec
}

fn measure(name: &str, mut decide: impl FnMut()) {
    (0..DECISIONS / 10).for_each(|_| decide());
    let (mut wall, mut thread) = (Vec::with_capacity(DECISIONS), Vec::with_capacity(DECISIONS));
    for _ in 0..DECISIONS {
        let started = Instant::now();
        decide();
        wall.push(started.elapsed());
    }
    for _ in 0..DECISIONS {
        let started = thread_time();
        decide();
        thread.push(thread_time() - started);
    }
    for (clock, times) in [("wall", &mut wall), ("thread", &mut thread)] {
        times.sort_unstable();
        let micros = |part: f64| times[((DECISIONS - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
        let (p50, p99, p999) = (micros(0.5), micros(0.99), micros(0.999));
        println!("  {name:<10} {clock:<6} p50 {p50:>7.2} µs   p99 {p99:>7.2} µs   p99.9 {p999:>7.2} µs");
    }
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
