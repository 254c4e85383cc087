//! Concurrent runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;
use wasm::{GuestExit, Limits, MEMORIES_MAX, Metering, Run, RunSpec, Stop, SubmitError, TABLES_MAX};

use crate::guests::{endless, guest, noop, standalone};
use crate::support::{Fixture, recording_spec, spec};

#[tokio::test]
async fn every_run_is_reported_once() {
    let fixture = Fixture::new();
    let good = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    let bad = standalone(r#"(func (export "run") (result i32) unreachable)"#);
    let bad = fixture.prepare(&bad, Metering::Off).await.unwrap();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let runs = (0..1000).map(|number| {
        let program = if number % 2 == 0 { good.clone() } else { bad.clone() };
        let sender = sender.clone();
        Run::new(program, spec(), Stop::new(), move |outcome| drop(sender.send((number, outcome))))
    });
    fixture.executor.run_all(runs.collect()).unwrap();
    drop(sender);
    let mut reported = [false; 1000];
    while let Some((number, outcome)) = receiver.recv().await {
        let as_expected = match outcome.exit {
            GuestExit::Succeeded => number % 2 == 0,
            GuestExit::Trapped(_) => number % 2 == 1,
            exit => panic!("{exit:?}"),
        };
        assert!(as_expected && !std::mem::replace(&mut reported[number], true));
    }
    assert!(reported.iter().all(|reported| *reported));
}

#[tokio::test]
async fn short_runs_are_not_blocked_by_long_ones() {
    let fixture = Fixture::with(|options| options.slots = 32);
    let long = fixture.prepare(&endless(""), Metering::Off).await.unwrap();
    let stop = Stop::new();
    let (spec, printed) = recording_spec();
    let long: Vec<_> = (0..16).map(|_| fixture.begin(long.clone(), spec.clone(), stop.clone())).collect();
    printed.wait_for_bytes(16).await;
    for _ in 0..10 {
        assert_eq!(fixture.run(&noop(), Limits::default()).await.exit, GuestExit::Succeeded);
    }
    stop.stop();
    for long in long {
        assert_eq!(long.await.exit, GuestExit::Stopped);
    }
}

#[tokio::test]
async fn concurrent_runs_are_limited_by_the_slots() {
    /// Current and maximum number of running guests.
    struct Running {
        current: AtomicUsize,
        max: AtomicUsize,
    }
    impl wasm::Sink for Running {
        fn write(&self, _stream: wasm::Stream, _bytes: &[u8]) {
            let current = self.current.fetch_add(1, Ordering::SeqCst) + 1;
            self.max.fetch_max(current, Ordering::SeqCst);
        }
    }
    let fixture = Fixture::with(|options| options.slots = 3);
    let sleeper = guest(
        r#"(func (export "run") (result i32)
          (call $print (i32.const 1024) (i32.const 1))
          (call $block (call $subscribe-duration (i64.const 50000000)))
          i32.const 0)"#,
    );
    let program = fixture.prepare(&sleeper, Metering::Off).await.unwrap();
    let running = Arc::new(Running { current: 0.into(), max: 0.into() });
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let runs = (0..12).map(|_| {
        let (sender, running) = (sender.clone(), running.clone());
        let spec = RunSpec { sink: running.clone(), ..spec() };
        Run::new(program.clone(), spec, Stop::new(), move |outcome| {
            running.current.fetch_sub(1, Ordering::SeqCst);
            drop(sender.send(outcome));
        })
    });
    fixture.executor.run_all(runs.collect()).unwrap();
    for _ in 0..12 {
        assert_eq!(receiver.recv().await.unwrap().exit, GuestExit::Succeeded);
    }
    // Threads were added up to the number of slots.
    assert_eq!(running.max.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn all_slots_hold_the_largest_component_at_once() {
    let fixture = Fixture::with(|options| options.slots = 8);
    // The prelude brings one memory.
    let others = "(memory 1)".repeat(MEMORIES_MAX as usize - 1) + &"(table 1 funcref)".repeat(TABLES_MAX as usize);
    let large = guest(&format!(
        r#"{others}
        (func (export "run") (result i32)
          (call $print (i32.const 1024) (i32.const 1))
          (loop $forever (br $forever))
          unreachable)"#
    ));
    let program = fixture.prepare(&large, Metering::Off).await.unwrap();
    let stop = Stop::new();
    let (spec, printed) = recording_spec();
    let runs: Vec<_> = (0..8).map(|_| fixture.begin(program.clone(), spec.clone(), stop.clone())).collect();
    printed.wait_for_bytes(8).await;
    stop.stop();
    for run in runs {
        let outcome = run.await;
        assert_eq!((outcome.exit, outcome.memory_peak_bytes), (GuestExit::Stopped, 128 << 10));
    }
}

#[tokio::test]
async fn the_queue_is_limited() {
    let fixture = Fixture::with(|options| {
        options.slots = 1;
        options.queue_max = 2;
    });
    let program = fixture.prepare(&endless(""), Metering::Off).await.unwrap();
    let stop = Stop::new();
    let (first, printed) = recording_spec();
    let mut runs = vec![fixture.begin(program.clone(), first, stop.clone())];
    // The run leaves the queue when it starts.
    printed.wait_for_bytes(1).await;
    runs.extend((0..2).map(|_| fixture.begin(program.clone(), spec(), stop.clone())));
    let rejected =
        fixture.executor.run(Run::new(program, spec(), Stop::new(), |_| panic!("a rejected run must not be reported")));
    assert!(matches!(rejected, Err(SubmitError::Full { queued: 2, queued_max: 2 })));
    stop.stop();
    for run in runs {
        assert_eq!(run.await.exit, GuestExit::Stopped);
    }
}

#[tokio::test]
async fn a_panic_in_a_callback_does_not_affect_other_runs() {
    let fixture = Fixture::with(|options| options.slots = 1);
    let program = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    fixture.executor.run(Run::new(program, spec(), Stop::new(), |_| panic!("on purpose"))).unwrap();
    assert_eq!(fixture.run(&noop(), Limits::default()).await.exit, GuestExit::Succeeded);
}
