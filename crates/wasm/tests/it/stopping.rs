//! A stop is prompt, whatever the guest is doing.

use std::time::{Duration, Instant};

use wasm::{Metering, Stop, Verdict};

use crate::common::{Fixture, printing, task};
use crate::guests::{endless, noop};

/// Ticks come late on a busy machine.
const PROMPT: Duration = Duration::from_millis(500);

const SPINS: &str = "";

// FEATURES: E1
#[tokio::test]
async fn a_guest_stops_promptly_whatever_it_does() {
    let ways = [
        SPINS,
        // It sleeps for an hour, for ever, and for no time again and again; or it waits for two things at a time.
        "(call $block (call $subscribe-duration (i64.const 3600000000000)))",
        "(call $block (call $subscribe-duration (i64.const -1)))",
        "(if (i32.eqz (i32.load (i32.const 68)))
           (then (i32.store (i32.const 68) (call $subscribe-duration (i64.const 0)))))
         (call $block (i32.load (i32.const 68)))",
        "(i32.store (i32.const 64) (call $subscribe-duration (i64.const 3600000000000)))
         (i32.store (i32.const 68) (call $subscribe-duration (i64.const 3600000000000)))
         (call $poll (i32.const 64) (i32.const 2) (i32.const 0))",
    ];
    let fixture = Fixture::new();
    for way in ways {
        let program = fixture.prepare(&endless(way), Metering::Off).await.unwrap();
        let (task, printed) = printing();
        let stop = Stop::new();
        let ending = fixture.begin(program, task, stop.clone());
        printed.has_come(1).await;
        let told = Instant::now();
        stop.stop();
        assert_eq!(ending.await.verdict, Verdict::Stopped, "{way}");
        assert!(told.elapsed() < PROMPT, "{way} {:?}", told.elapsed());
    }
}

#[tokio::test]
async fn a_run_that_is_stopped_before_it_begins_does_not_begin() {
    let fixture = Fixture::new();
    let program = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    let stop = Stop::new();
    stop.stop();
    let ended = fixture.begin(program, task(), stop).await;
    assert_eq!((ended.verdict, ended.memory_peak_bytes), (Verdict::Stopped, 0));
}

#[tokio::test]
async fn a_run_that_waits_for_a_slot_stops_promptly_too() {
    let fixture = Fixture::with(|options| options.slots = 1);
    let program = fixture.prepare(&endless(SPINS), Metering::Off).await.unwrap();
    let (first, second) = (Stop::new(), Stop::new());
    let running = fixture.begin(program.clone(), task(), first.clone());
    let waiting = fixture.begin(program, task(), second.clone());
    let told = Instant::now();
    second.stop();
    assert_eq!(waiting.await.verdict, Verdict::Stopped);
    assert!(told.elapsed() < PROMPT);
    first.stop();
    assert_eq!(running.await.verdict, Verdict::Stopped);
}

#[tokio::test]
async fn without_an_executor_what_waits_is_stopped_and_what_runs_goes_on() {
    let fixture = Fixture::with(|options| options.slots = 1);
    let program = fixture.prepare(&endless(SPINS), Metering::Off).await.unwrap();
    let (first_task, printed) = printing();
    let stop = Stop::new();
    let running = fixture.begin(program.clone(), first_task, stop.clone());
    printed.has_come(1).await;
    let waiting = fixture.begin(program, task(), Stop::new());
    drop(fixture);
    assert_eq!(waiting.await.verdict, Verdict::Stopped);
    stop.stop();
    assert_eq!(running.await.verdict, Verdict::Stopped);
}
