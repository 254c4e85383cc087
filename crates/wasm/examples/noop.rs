//! Benchmark: runs per second of a no-op component and of the components given as arguments.
//!
//! `cargo run --release -p wasm --example noop [component.wasm …]`

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use model::blob::BlobId;
use wasm::{Executor, Limits, Metering, Options, Program, Run, RunSpec, Sink, Stop, Stream};
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{Config, Engine, PoolingAllocationConfig, Store};

const RUNS: usize = 200_000;
const BATCH: usize = 1_000;

const NOOP: &str = r#"(component
    (core module $module (memory 1) (func (export "run") (result i32) i32.const 0))
    (core instance $instance (instantiate $module))
    (func $run (result (result)) (canon lift (core func $instance "run")))
    (instance $entry (export "run" (func $run)))
    (export "wasi:cli/run@0.2.0" (instance $entry)))"#;

struct NullSink;

impl Sink for NullSink {
    fn write(&self, _stream: Stream, _bytes: &[u8]) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let noop = Bytes::from(wat::parse_str(NOOP)?);
    for threads in [1, 2] {
        let rate = bare(&noop, threads)?;
        println!("{threads} thread(s), no-op, instantiation and call only: {rate:>8.0} runs/s");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    runtime.block_on(measure("no-op", noop))?;
    for path in std::env::args().skip(1) {
        let content = std::fs::read(&path)?.into();
        runtime.block_on(measure(&path, content))?;
    }
    Ok(())
}

/// The engine's minimum: a store, an instance, a call.
fn bare(component: &Bytes, threads: usize) -> wasmtime::Result<f64> {
    let mut pooling = PoolingAllocationConfig::new();
    pooling.total_memories(8).total_tables(8).linear_memory_keep_resident(64 << 10).max_unused_warm_slots(0);
    let mut config = Config::new();
    config.allocation_strategy(pooling).concurrency_support(false);
    let engine = Engine::new(&config)?;
    let component = Component::new(&engine, component)?;
    let linked = Linker::<()>::new(&engine).instantiate_pre(&component)?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| bare_runs(&linked, RUNS / threads))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a benchmark thread does not panic"))
    })?;
    Ok(RUNS as f64 / begun.elapsed().as_secs_f64())
}

fn bare_runs(linked: &InstancePre<()>, count: usize) -> wasmtime::Result<()> {
    let entry = linked.component().get_export_index(None, "wasi:cli/run@0.2.0");
    let run = linked.component().get_export_index(entry.as_ref(), "run").expect("the component exports `run`");
    for _ in 0..count {
        let mut store = Store::new(linked.engine(), ());
        let instance = linked.instantiate(&mut store)?;
        let run = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut store, run)?;
        run.call(&mut store, ())?.0.expect("the component succeeds");
    }
    Ok(())
}

/// End to end: through the queue, with all limits, to the callback.
async fn measure(name: &str, content: Bytes) -> Result<(), Box<dyn Error>> {
    for slots in [1, 2] {
        for metering in [Metering::Off, Metering::Fuel] {
            let directory = std::env::temp_dir().join(format!("wasm-noop-{}", std::process::id()));
            let executor = Executor::new(Options { slots, ..Options::new(&directory) })?;
            let bytes = content.clone();
            let program = executor.prepare(BlobId::of(&content), metering, async { Ok(bytes) }).await?;
            let begun = Instant::now();
            let mut cpu = Duration::ZERO;
            for _ in 0..RUNS / BATCH {
                cpu += batch(&executor, &program)?;
            }
            let rate = RUNS as f64 / begun.elapsed().as_secs_f64();
            let cpu = cpu.as_secs_f64() * 1e6 / RUNS as f64;
            println!("{slots} slot(s), {name}, metering {metering:?}: {rate:>8.0} runs/s, {cpu:.1} µs CPU per run");
            std::fs::remove_dir_all(directory)?;
        }
    }
    Ok(())
}

/// Runs a batch to its end and returns its CPU time.
fn batch(executor: &Executor, program: &Arc<Program>) -> Result<Duration, Box<dyn Error>> {
    let (sender, receiver) = sync_channel(BATCH);
    let sink: Arc<dyn Sink> = Arc::new(NullSink);
    let runs = (0..BATCH).map(|_| {
        let spec = RunSpec {
            args: vec!["noop".into()],
            env: Vec::new(),
            stdin: Bytes::new(),
            inputs: None,
            outputs: None,
            limits: Limits { wall: Some(Duration::from_secs(60)), ..Limits::default() },
            sink: sink.clone(),
        };
        let sender = sender.clone();
        Run::new(program.clone(), spec, Stop::new(), move |outcome| drop(sender.send(outcome)))
    });
    executor.run_all(runs.collect())?;
    drop(sender);
    Ok(receiver.iter().map(|outcome| outcome.cpu).sum())
}
