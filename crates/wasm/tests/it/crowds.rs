//! Many at a time: all get their turn, and nobody is in another's way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;
use wasm::{Limits, MEMORIES_MAX, Metering, Rejected, Run, Stop, TABLES_MAX, Task, Verdict};

use crate::common::{Fixture, printing, task};
use crate::guests::{alone, endless, guest, noop};

#[tokio::test]
async fn a_thousand_runs_end_a_thousand_times() {
    let fixture = Fixture::new();
    let good = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    let bad = alone(r#"(func (export "run") (result i32) unreachable)"#);
    let bad = fixture.prepare(&bad, Metering::Off).await.unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let runs = (0..1000).map(|number| {
        let program = if number % 2 == 0 { good.clone() } else { bad.clone() };
        let tell = tell.clone();
        Run::new(program, task(), Stop::new(), move |ended| drop(tell.send((number, ended))))
    });
    fixture.executor.run_all(runs.collect()).unwrap();
    drop(tell);
    let mut heard = [false; 1000];
    while let Some((number, ended)) = told.recv().await {
        let as_expected = match ended.verdict {
            Verdict::Succeeded => number % 2 == 0,
            Verdict::Trapped(_) => number % 2 == 1,
            verdict => panic!("{verdict:?}"),
        };
        assert!(as_expected && !std::mem::replace(&mut heard[number], true));
    }
    assert!(heard.iter().all(|heard| *heard));
}

#[tokio::test]
async fn short_runs_get_their_turn_beside_as_many_long_ones_as_there_are_processors() {
    let fixture = Fixture::with(|options| options.slots = 32);
    let long = fixture.prepare(&endless(""), Metering::Off).await.unwrap();
    let stop = Stop::new();
    let (task, printed) = printing();
    let long: Vec<_> = (0..16).map(|_| fixture.begin(long.clone(), task.clone(), stop.clone())).collect();
    printed.has_come(16).await;
    for _ in 0..10 {
        assert_eq!(fixture.run(&noop(), Limits::default()).await.verdict, Verdict::Succeeded);
    }
    stop.stop();
    for long in long {
        assert_eq!(long.await.verdict, Verdict::Stopped);
    }
}

#[tokio::test]
async fn no_more_run_at_a_time_than_there_are_slots_and_the_rest_waits() {
    /// Counts those that have begun to run and not ended.
    struct Running(AtomicUsize, AtomicUsize);
    impl wasm::Sink for Running {
        fn write(&self, _stream: wasm::Stream, _bytes: &[u8]) {
            let running = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            self.1.fetch_max(running, Ordering::SeqCst);
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
    let running = Arc::new(Running(0.into(), 0.into()));
    let (tell, mut told) = mpsc::unbounded_channel();
    let runs = (0..12).map(|_| {
        let (tell, running) = (tell.clone(), running.clone());
        let task = Task { sink: running.clone(), ..task() };
        Run::new(program.clone(), task, Stop::new(), move |ended| {
            running.0.fetch_sub(1, Ordering::SeqCst);
            drop(tell.send(ended));
        })
    });
    fixture.executor.run_all(runs.collect()).unwrap();
    for _ in 0..12 {
        assert_eq!(told.recv().await.unwrap().verdict, Verdict::Succeeded);
    }
    // Threads came as they were needed, and then no more.
    assert_eq!(running.1.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn the_largest_components_fill_all_slots_at_a_time() {
    let fixture = Fixture::with(|options| options.slots = 8);
    // One memory comes with every guest.
    let others = "(memory 1)".repeat(MEMORIES_MAX as usize - 1) + &"(table 1 funcref)".repeat(TABLES_MAX as usize);
    let large = guest(&format!(
        r#"{others}
        (func (export "run") (result i32)
          (call $print (i32.const 1024) (i32.const 1))
          (loop $for_ever (br $for_ever))
          unreachable)"#
    ));
    let program = fixture.prepare(&large, Metering::Off).await.unwrap();
    let stop = Stop::new();
    let (task, printed) = printing();
    let runs: Vec<_> = (0..8).map(|_| fixture.begin(program.clone(), task.clone(), stop.clone())).collect();
    printed.has_come(8).await;
    stop.stop();
    for run in runs {
        let ended = run.await;
        assert_eq!((ended.verdict, ended.memory_peak_bytes), (Verdict::Stopped, 128 << 10));
    }
}

#[tokio::test]
async fn the_queue_takes_as_many_as_its_limit_and_rejects_the_next() {
    let fixture = Fixture::with(|options| {
        options.slots = 1;
        options.queue_max = 2;
    });
    let program = fixture.prepare(&endless(""), Metering::Off).await.unwrap();
    let stop = Stop::new();
    let (first, printed) = printing();
    let mut runs = vec![fixture.begin(program.clone(), first, stop.clone())];
    // It leaves the queue when it begins.
    printed.has_come(1).await;
    runs.extend((0..2).map(|_| fixture.begin(program.clone(), task(), stop.clone())));
    let rejected = fixture.executor.run(Run::new(program, task(), Stop::new(), |_| panic!("it does not run")));
    assert!(matches!(rejected, Err(Rejected::Full { queued: 2, queued_max: 2 })));
    stop.stop();
    for run in runs {
        assert_eq!(run.await.verdict, Verdict::Stopped);
    }
}

#[tokio::test]
async fn whoever_panics_at_the_end_of_a_run_harms_no_other() {
    let fixture = Fixture::with(|options| options.slots = 1);
    let program = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    fixture.executor.run(Run::new(program, task(), Stop::new(), |_| panic!("on purpose"))).unwrap();
    assert_eq!(fixture.run(&noop(), Limits::default()).await.verdict, Verdict::Succeeded);
}
