//! Resource limits, each tested at the limit and just beyond it.

use std::time::{Duration, Instant};

use wasm::{ENTRIES_MAX, GuestExit, HANDLES_MAX, Limits, Metering, RANDOM_BYTES_MAX, RunSpec, Stop};

use crate::guests::{guest, noop, standalone};
use crate::support::{Fixture, recording_spec, spec};

const PAGE: u64 = 64 << 10;

const SPINNING: &str = r#"(func (export "run") (result i32) (loop $forever (br $forever)) unreachable)"#;

/// Grows its memory page by page until that fails, then runs `then`.
fn greedy(then: &str) -> bytes::Bytes {
    standalone(&format!(
        r#"(memory 1)
        (func (export "run") (result i32)
          (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
          {then})"#
    ))
}

// FEATURES: E1
#[tokio::test]
async fn memory_growth_beyond_the_limit_fails_in_the_guest() {
    let limits = Limits { memory_bytes: 10 * PAGE, ..Limits::default() };
    let fixture = Fixture::new();
    let outcome = fixture.run(&greedy("(i32.ne (memory.size) (i32.const 10))"), limits).await;
    assert_eq!(outcome.exit, GuestExit::Succeeded);
    assert_eq!(outcome.memory_peak_bytes, 10 * PAGE);

    let outcome = fixture.run(&greedy("unreachable"), limits).await;
    assert!(matches!(outcome.exit, GuestExit::OutOfMemory(text) if text.contains("unreachable")));
}

// FEATURES: E1
#[tokio::test]
async fn refused_growth_does_not_reduce_the_counted_memory() {
    let grower = standalone(
        r#"(memory 1)
        (func (export "run") (result i32)
          (local $tries i32)
          (loop $more
            (drop (memory.grow (i32.const 1)))
            (drop (memory.grow (i32.const -1)))
            (local.set $tries (i32.add (local.get $tries) (i32.const 1)))
            (br_if $more (i32.lt_s (local.get $tries) (i32.const 100))))
          (i32.ne (memory.size) (i32.const 10)))"#,
    );
    let outcome = Fixture::new().run(&grower, Limits { memory_bytes: 10 * PAGE, ..Limits::default() }).await;
    assert_eq!(outcome.exit, GuestExit::Succeeded);
}

// FEATURES: E1
#[tokio::test]
async fn memory_is_limited_by_the_node() {
    let fixture = Fixture::with(|options| options.memory_bytes_max = 5 * PAGE);
    let outcome = fixture.run(&greedy("(i32.ne (memory.size) (i32.const 5))"), Limits::default()).await;
    assert_eq!(outcome.exit, GuestExit::Succeeded);
}

// FEATURES: E1
#[tokio::test]
async fn a_guest_with_too_large_an_initial_memory_does_not_start() {
    let large = standalone(r#"(memory 10) (func (export "run") (result i32) i32.const 0)"#);
    let fixture = Fixture::new();
    let run = |pages: u64| fixture.run(&large, Limits { memory_bytes: pages * PAGE, ..Limits::default() });
    assert_eq!(run(10).await.exit, GuestExit::Succeeded);
    assert!(matches!(run(9).await.exit, GuestExit::OutOfMemory(_)));
}

// FEATURES: E1
#[tokio::test]
async fn a_computing_guest_ends_at_its_time_limit() {
    let fixture = Fixture::new();
    let wall = Some(Duration::from_millis(50));
    let started = Instant::now();
    let outcome = fixture.run(&standalone(SPINNING), Limits { wall, ..Limits::default() }).await;
    assert_eq!(outcome.exit, GuestExit::TimedOut);
    assert!(outcome.cpu >= Duration::from_millis(10));
    assert!(started.elapsed() >= Duration::from_millis(50));
    assert_eq!(fixture.run(&noop(), Limits { wall, ..Limits::default() }).await.exit, GuestExit::Succeeded);
}

// FEATURES: E1
#[tokio::test]
async fn a_sleeping_guest_ends_at_its_time_limit() {
    let sleeper = guest(
        r#"(func (export "run") (result i32)
          (call $block (call $subscribe-duration (i64.const 3600000000000)))
          i32.const 0)"#,
    );
    let wall = Some(Duration::from_millis(50));
    let outcome = Fixture::new().run(&sleeper, Limits { wall, ..Limits::default() }).await;
    assert_eq!(outcome.exit, GuestExit::TimedOut);
}

#[tokio::test]
async fn a_sleeping_guest_wakes_at_the_first_timer() {
    let sleeper = guest(
        r#"(func (export "run") (result i32)
          ;; Two timers; the second fires first.
          (i32.store (i32.const 64) (call $subscribe-duration (i64.const 3600000000000)))
          (i32.store (i32.const 68) (call $subscribe-duration (i64.const 30000000)))
          (call $poll (i32.const 64) (i32.const 2) (i32.const 0))
          ;; One is ready: number 1.
          (i32.or
            (i32.ne (i32.load (i32.const 4)) (i32.const 1))
            (i32.ne (i32.load (i32.load (i32.const 0))) (i32.const 1))))"#,
    );
    let started = Instant::now();
    let outcome =
        Fixture::new().run(&sleeper, Limits { wall: Some(Duration::from_secs(30)), ..Limits::default() }).await;
    assert_eq!(outcome.exit, GuestExit::Succeeded);
    assert!(started.elapsed() >= Duration::from_millis(30));
}

// FEATURES: E1
#[tokio::test]
async fn fuel_consumption_is_deterministic() {
    let fixture = Fixture::new();
    let counting = standalone(
        r#"(func (export "run") (result i32)
          (local $n i32)
          (local.set $n (i32.const 1000))
          (loop $more (br_if $more (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
          i32.const 0)"#,
    );
    let run = |fuel| fixture.run(&counting, Limits { fuel: Some(fuel), ..Limits::default() });
    let outcome = run(1 << 20).await;
    assert_eq!(outcome.exit, GuestExit::Succeeded);
    let used = outcome.fuel_used.unwrap();
    assert!(used > 1000);
    assert_eq!(run(used).await.exit, GuestExit::Succeeded);
    assert_eq!(run(used).await.fuel_used, Some(used));
    assert_eq!(run(used / 2).await.exit, GuestExit::OutOfFuel);

    let outcome = fixture.run(&standalone(SPINNING), Limits { fuel: Some(1_000_000), ..Limits::default() }).await;
    assert_eq!(outcome.exit, GuestExit::OutOfFuel);
}

#[tokio::test]
async fn an_unmetered_program_does_not_run_with_a_fuel_limit() {
    let fixture = Fixture::new();
    let program = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    let limits = Limits { fuel: Some(1000), ..Limits::default() };
    let outcome = fixture.begin(program, RunSpec { limits, ..spec() }, Stop::new()).await;
    assert!(matches!(outcome.exit, GuestExit::HostFailed(_)));
}

#[tokio::test]
async fn a_metered_program_runs_without_a_fuel_limit() {
    let fixture = Fixture::new();
    let program = fixture.prepare(&noop(), Metering::Fuel).await.unwrap();
    let outcome = fixture.begin(program, spec(), Stop::new()).await;
    assert_eq!((outcome.exit, outcome.fuel_used), (GuestExit::Succeeded, None));
}

// FEATURES: E1
#[tokio::test]
async fn output_beyond_its_limit_is_truncated_and_the_guest_continues() {
    let talker = guest(
        r#"(data (i32.const 1024) "0123456789")
        (func (export "run") (result i32)
          (call $print (i32.const 1024) (i32.const 10))
          (call $print (i32.const 1024) (i32.const 10))
          (call $check (i32.const 4))
          i32.const 0)"#,
    );
    let fixture = Fixture::new();
    for (output_bytes, expected, truncated) in
        [(20, "01234567890123456789", 0), (19, "0123456789012345678", 1), (0, "", 20)]
    {
        let (spec, printed) = recording_spec();
        let limits = Limits { output_bytes, ..Limits::default() };
        let outcome = fixture.run_spec(&talker, RunSpec { limits, ..spec }).await;
        assert_eq!(outcome.exit, GuestExit::Succeeded);
        assert_eq!((printed.stdout().as_str(), outcome.output_truncated_bytes), (expected, truncated));
    }
}

// FEATURES: E1
#[tokio::test]
async fn random_bytes_in_one_call_are_limited() {
    let fixture = Fixture::new();
    let requests = |bytes: u64| {
        guest(&format!(
            r#"(func (export "run") (result i32)
              (call $get-random-bytes (i64.const {bytes}) (i32.const 0))
              (i64.ne (i64.extend_i32_u (i32.load (i32.const 4))) (i64.const {bytes})))"#
        ))
    };
    assert_eq!(fixture.run(&requests(RANDOM_BYTES_MAX), Limits::default()).await.exit, GuestExit::Succeeded);
    for beyond in [RANDOM_BYTES_MAX + 1, 4 << 30, u64::MAX >> 1] {
        let outcome = fixture.run(&requests(beyond), Limits::default()).await;
        assert!(matches!(outcome.exit, GuestExit::Trapped(text) if text.contains("exceeds limit")));
    }
}

// FEATURES: E1
#[tokio::test]
async fn data_passed_to_the_host_in_one_call_is_limited() {
    // One timer a million times: four megabytes in the guest, many more in the host.
    let poller = guest(
        r#"(func (export "run") (result i32)
          (local $timer i32) (local $at i32)
          (drop (memory.grow (i32.const 64)))
          (local.set $timer (call $subscribe-duration (i64.const 1)))
          (local.set $at (i32.const 65536))
          (loop $more
            (i32.store (local.get $at) (local.get $timer))
            (local.set $at (i32.add (local.get $at) (i32.const 4)))
            (br_if $more (i32.lt_u (local.get $at) (i32.const 4065536))))
          (call $poll (i32.const 65536) (i32.const 1000000) (i32.const 0))
          i32.const 0)"#,
    );
    let outcome = Fixture::new().run(&poller, Limits { memory_bytes: 6 << 20, ..Limits::default() }).await;
    assert!(matches!(&outcome.exit, GuestExit::Trapped(text) if text.contains("too much data")), "{:?}", outcome.exit);
}

// FEATURES: E1
#[tokio::test]
async fn host_resources_held_by_a_guest_are_limited() {
    let fixture = Fixture::new();
    let holds = |timers: usize| {
        guest(&format!(
            r#"(func (export "run") (result i32)
              (local $n i32)
              (loop $more
                (drop (call $subscribe-duration (i64.const 1000)))
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $n) (i32.const {timers}))))
              i32.const 0)"#
        ))
    };
    // A timer uses two resources: the deadline and its pollable.
    assert_eq!(fixture.run(&holds(HANDLES_MAX / 2), Limits::default()).await.exit, GuestExit::Succeeded);
    let outcome = fixture.run(&holds(HANDLES_MAX / 2 + 1), Limits::default()).await;
    assert!(matches!(outcome.exit, GuestExit::Trapped(_)));
}

/// Opens a file and writes to it by `write`. Exits with the WASI error code plus 100, if any.
fn writer(write: &str) -> bytes::Bytes {
    guest(&format!(
        r#"(data (i32.const 1024) "file0123456789")
        (func (export "run") (result i32)
          (local $file i32)
          (local.set $file (call $open (call $directory (i32.const 0))
            (i32.const 1024) (i32.const 4) (i32.const 1) (i32.const 3)))
          {write}
          i32.const 0)"#
    ))
}

// FEATURES: E1
#[tokio::test]
async fn the_file_limit_applies_to_every_kind_of_write() {
    /// WASI error code plus 100.
    const NO_SPACE: u8 = 123;
    const FAILED: u8 = 100;
    let ways = [
        (
            "(call $write (local.get $file) (i32.const 1028) (i32.const 10) (i64.const 0) (i32.const 0))
             (call $check (i32.const 8))",
            10,
            NO_SPACE,
        ),
        (
            "(call $write (local.get $file) (i32.const 1028) (i32.const 1) (i64.const 999) (i32.const 0))
             (call $check (i32.const 8))",
            1000,
            NO_SPACE,
        ),
        (
            "(call $set-size (local.get $file) (i64.const 1000) (i32.const 0)) (call $check (i32.const 1))",
            1000,
            NO_SPACE,
        ),
        (
            "(call $write-via-stream (local.get $file) (i64.const 1000) (i32.const 0))
             (call $check (i32.const 4))",
            1000,
            NO_SPACE,
        ),
        (
            "(call $write-via-stream (local.get $file) (i64.const 0) (i32.const 0))
             (call $blocking-write-and-flush (i32.load (i32.const 4)) (i32.const 1028) (i32.const 10) (i32.const 0))
             (call $check (i32.const 4))",
            10,
            FAILED,
        ),
        (
            "(call $write-via-stream (local.get $file) (i64.const 0) (i32.const 0))
             (call $stream-write (i32.load (i32.const 4)) (i32.const 1028) (i32.const 10) (i32.const 0))
             (call $check (i32.const 4))",
            10,
            FAILED,
        ),
    ];
    let fixture = Fixture::new();
    for (number, (way, needed, refusal)) in ways.into_iter().enumerate() {
        let outputs = Some(fixture.make_directory(&format!("outputs{number}")));
        for (file_bytes, exit) in [(needed - 1, GuestExit::ExitCode(refusal)), (needed, GuestExit::Succeeded)] {
            let limits = Limits { file_bytes, ..Limits::default() };
            let spec = RunSpec { outputs: outputs.clone(), limits, ..spec() };
            assert_eq!(fixture.run_spec(&writer(way), spec).await.exit, exit, "{way}");
        }
    }
}

// FEATURES: E1
#[tokio::test]
async fn files_created_by_a_guest_are_limited() {
    let creator = guest(
        r#"(data (i32.const 1024) "d")
        (func (export "run") (result i32)
          (local $directory i32) (local $made i32)
          (local.set $directory (call $directory (i32.const 0)))
          (loop $more
            ;; All but the first fail, since the directory exists; they are counted anyway.
            (call $create-directory-at (local.get $directory) (i32.const 1024) (i32.const 1) (i32.const 0))
            (local.set $made (i32.add (local.get $made) (i32.const 1)))
            (br_if $more (i32.ne (i32.load8_u (i32.const 1)) (i32.const 23))))
          (i32.store (i32.const 64) (local.get $made))
          (call $print (i32.const 64) (i32.const 4))
          i32.const 0)"#,
    );
    struct CountSink(std::sync::atomic::AtomicU32);
    impl wasm::Sink for CountSink {
        fn write(&self, _stream: wasm::Stream, bytes: &[u8]) {
            self.0.store(u32::from_le_bytes(bytes.try_into().unwrap()), std::sync::atomic::Ordering::Relaxed);
        }
    }
    let counted = std::sync::Arc::new(CountSink(0.into()));
    let fixture = Fixture::new();
    let outputs = Some(fixture.make_directory("outputs"));
    let outcome = fixture.run_spec(&creator, RunSpec { outputs, sink: counted.clone(), ..spec() }).await;
    assert_eq!(outcome.exit, GuestExit::Succeeded);
    assert_eq!(counted.0.load(std::sync::atomic::Ordering::Relaxed), ENTRIES_MAX + 1);
}
