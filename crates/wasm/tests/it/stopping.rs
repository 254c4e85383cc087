//! Stopping of guests.

use std::time::{Duration, Instant};

use wasm::{GuestExit, Metering, Stop};

use crate::guests::{endless, noop};
use crate::support::{Fixture, recording_spec, spec};

/// Maximum delay of a stop; generous, since ticks are late on a busy machine.
const PROMPT: Duration = Duration::from_millis(500);

const SPINS: &str = "";

// FEATURES: E1
#[tokio::test]
async fn a_computing_or_waiting_guest_stops_promptly() {
    let ways = [
        SPINS,
        // Sleeps for an hour, forever, and repeatedly for no time; waits for two timers.
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
        let (spec, printed) = recording_spec();
        let stop = Stop::new();
        let ending = fixture.begin(program, spec, stop.clone());
        printed.wait_for_bytes(1).await;
        let since = Instant::now();
        stop.stop();
        assert_eq!(ending.await.exit, GuestExit::Stopped, "{way}");
        assert!(since.elapsed() < PROMPT, "{way} {:?}", since.elapsed());
    }
}

#[tokio::test]
async fn a_run_stopped_before_its_start_does_not_start() {
    let fixture = Fixture::new();
    let program = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    let stop = Stop::new();
    stop.stop();
    let outcome = fixture.begin(program, spec(), stop).await;
    assert_eq!((outcome.exit, outcome.memory_peak_bytes), (GuestExit::Stopped, 0));
}

#[tokio::test]
async fn a_queued_run_stops_promptly() {
    let fixture = Fixture::with(|options| options.slots = 1);
    let program = fixture.prepare(&endless(SPINS), Metering::Off).await.unwrap();
    let (first, second) = (Stop::new(), Stop::new());
    let running = fixture.begin(program.clone(), spec(), first.clone());
    let waiting = fixture.begin(program, spec(), second.clone());
    let since = Instant::now();
    second.stop();
    assert_eq!(waiting.await.exit, GuestExit::Stopped);
    assert!(since.elapsed() < PROMPT);
    first.stop();
    assert_eq!(running.await.exit, GuestExit::Stopped);
}

#[tokio::test]
async fn dropping_the_executor_stops_queued_runs_and_not_running_ones() {
    let fixture = Fixture::with(|options| options.slots = 1);
    let program = fixture.prepare(&endless(SPINS), Metering::Off).await.unwrap();
    let (first_spec, printed) = recording_spec();
    let stop = Stop::new();
    let running = fixture.begin(program.clone(), first_spec, stop.clone());
    printed.wait_for_bytes(1).await;
    let waiting = fixture.begin(program, spec(), Stop::new());
    drop(fixture);
    assert_eq!(waiting.await.exit, GuestExit::Stopped);
    stop.stop();
    assert_eq!(running.await.exit, GuestExit::Stopped);
}
