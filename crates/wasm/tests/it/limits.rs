//! Each limit: just within it all is well, just beyond it is not.

use std::time::{Duration, Instant};

use wasm::{ENTRIES_MAX, HANDLES_MAX, Limits, Metering, RANDOM_BYTES_MAX, Stop, Task, Verdict};

use crate::common::{Fixture, printing, task};
use crate::guests::{alone, guest, noop};

const PAGE: u64 = 64 << 10;

const SPINNING: &str = r#"(func (export "run") (result i32) (loop $for_ever (br $for_ever)) unreachable)"#;

/// Grows its memory page by page until it cannot, then does something.
fn greedy(then: &str) -> bytes::Bytes {
    alone(&format!(
        r#"(memory 1)
        (func (export "run") (result i32)
          (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
          {then})"#
    ))
}

// FEATURES: E1
#[tokio::test]
async fn memory_grows_up_to_its_limit_and_the_guest_is_told() {
    let limits = Limits { memory_bytes: 10 * PAGE, ..Limits::default() };
    let fixture = Fixture::new();
    let ended = fixture.run(&greedy("(i32.ne (memory.size) (i32.const 10))"), limits).await;
    assert_eq!(ended.verdict, Verdict::Succeeded);
    assert_eq!(ended.memory_peak_bytes, 10 * PAGE);

    let ended = fixture.run(&greedy("unreachable"), limits).await;
    assert!(matches!(ended.verdict, Verdict::OutOfMemory(text) if text.contains("unreachable")));
}

// FEATURES: E1
#[tokio::test]
async fn absurd_wishes_do_not_make_room_for_more_memory() {
    let cunning = alone(
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
    let ended = Fixture::new().run(&cunning, Limits { memory_bytes: 10 * PAGE, ..Limits::default() }).await;
    assert_eq!(ended.verdict, Verdict::Succeeded);
}

// FEATURES: E1
#[tokio::test]
async fn no_task_gets_more_memory_than_the_node_gives() {
    let fixture = Fixture::with(|options| options.memory_bytes_max = 5 * PAGE);
    let ended = fixture.run(&greedy("(i32.ne (memory.size) (i32.const 5))"), Limits::default()).await;
    assert_eq!(ended.verdict, Verdict::Succeeded);
}

// FEATURES: E1
#[tokio::test]
async fn a_guest_that_begins_beyond_its_memory_does_not_begin() {
    let large = alone(r#"(memory 10) (func (export "run") (result i32) i32.const 0)"#);
    let fixture = Fixture::new();
    let run = |pages: u64| fixture.run(&large, Limits { memory_bytes: pages * PAGE, ..Limits::default() });
    assert_eq!(run(10).await.verdict, Verdict::Succeeded);
    assert!(matches!(run(9).await.verdict, Verdict::OutOfMemory(_)));
}

// FEATURES: E1
#[tokio::test]
async fn a_guest_that_never_ends_is_ended_when_its_time_is_up() {
    let fixture = Fixture::new();
    let wall = Some(Duration::from_millis(50));
    let begun = Instant::now();
    let ended = fixture.run(&alone(SPINNING), Limits { wall, ..Limits::default() }).await;
    assert_eq!(ended.verdict, Verdict::TimedOut);
    assert!(ended.cpu >= Duration::from_millis(10));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    assert_eq!(fixture.run(&noop(), Limits { wall, ..Limits::default() }).await.verdict, Verdict::Succeeded);
}

// FEATURES: E1
#[tokio::test]
async fn a_guest_that_sleeps_is_woken_when_its_time_is_up() {
    let sleeper = guest(
        r#"(func (export "run") (result i32)
          (call $block (call $subscribe-duration (i64.const 3600000000000)))
          i32.const 0)"#,
    );
    let wall = Some(Duration::from_millis(50));
    let ended = Fixture::new().run(&sleeper, Limits { wall, ..Limits::default() }).await;
    assert_eq!(ended.verdict, Verdict::TimedOut);
}

#[tokio::test]
async fn a_guest_that_sleeps_for_a_while_wakes_by_itself() {
    let sleeper = guest(
        r#"(func (export "run") (result i32)
          ;; Two timers, of which the second comes first.
          (i32.store (i32.const 64) (call $subscribe-duration (i64.const 3600000000000)))
          (i32.store (i32.const 68) (call $subscribe-duration (i64.const 30000000)))
          (call $poll (i32.const 64) (i32.const 2) (i32.const 0))
          ;; One is ready, and it is number 1.
          (i32.or
            (i32.ne (i32.load (i32.const 4)) (i32.const 1))
            (i32.ne (i32.load (i32.load (i32.const 0))) (i32.const 1))))"#,
    );
    let begun = Instant::now();
    let ended = Fixture::new().run(&sleeper, Limits { wall: Some(Duration::from_secs(30)), ..Limits::default() }).await;
    assert_eq!(ended.verdict, Verdict::Succeeded);
    assert!(begun.elapsed() >= Duration::from_millis(30));
}

// FEATURES: E1
#[tokio::test]
async fn fuel_is_a_budget_that_is_the_same_every_time() {
    let fixture = Fixture::new();
    let counting = alone(
        r#"(func (export "run") (result i32)
          (local $n i32)
          (local.set $n (i32.const 1000))
          (loop $more (br_if $more (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
          i32.const 0)"#,
    );
    let run = |fuel| fixture.run(&counting, Limits { fuel: Some(fuel), ..Limits::default() });
    let ended = run(1 << 20).await;
    assert_eq!(ended.verdict, Verdict::Succeeded);
    let used = ended.fuel_used.unwrap();
    assert!(used > 1000);
    assert_eq!(run(used).await.verdict, Verdict::Succeeded);
    assert_eq!(run(used).await.fuel_used, Some(used));
    assert_eq!(run(used / 2).await.verdict, Verdict::OutOfFuel);

    let ended = fixture.run(&alone(SPINNING), Limits { fuel: Some(1_000_000), ..Limits::default() }).await;
    assert_eq!(ended.verdict, Verdict::OutOfFuel);
}

#[tokio::test]
async fn a_program_that_is_not_metered_does_not_run_on_fuel() {
    let fixture = Fixture::new();
    let program = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    let limits = Limits { fuel: Some(1000), ..Limits::default() };
    let ended = fixture.begin(program, Task { limits, ..task() }, Stop::new()).await;
    assert!(matches!(ended.verdict, Verdict::HostFailed(_)));
}

#[tokio::test]
async fn a_program_that_is_metered_runs_without_a_budget_too() {
    let fixture = Fixture::new();
    let program = fixture.prepare(&noop(), Metering::Fuel).await.unwrap();
    let ended = fixture.begin(program, task(), Stop::new()).await;
    assert_eq!((ended.verdict, ended.fuel_used), (Verdict::Succeeded, None));
}

// FEATURES: E1
#[tokio::test]
async fn output_beyond_its_limit_is_cut_and_the_guest_goes_on() {
    let talker = guest(
        r#"(data (i32.const 1024) "0123456789")
        (func (export "run") (result i32)
          (call $print (i32.const 1024) (i32.const 10))
          (call $print (i32.const 1024) (i32.const 10))
          (call $check (i32.const 4))
          i32.const 0)"#,
    );
    let fixture = Fixture::new();
    for (output_bytes, kept, cut) in [(20, "01234567890123456789", 0), (19, "0123456789012345678", 1), (0, "", 20)] {
        let (task, printed) = printing();
        let limits = Limits { output_bytes, ..Limits::default() };
        let ended = fixture.run_task(&talker, Task { limits, ..task }).await;
        assert_eq!(ended.verdict, Verdict::Succeeded);
        assert_eq!((printed.stdout().as_str(), ended.output_cut_bytes), (kept, cut));
    }
}

// FEATURES: E1
#[tokio::test]
async fn what_the_host_makes_for_a_guest_in_one_call_is_limited() {
    let fixture = Fixture::new();
    let asks = |bytes: u64| {
        guest(&format!(
            r#"(func (export "run") (result i32)
              (call $get-random-bytes (i64.const {bytes}) (i32.const 0))
              (i64.ne (i64.extend_i32_u (i32.load (i32.const 4))) (i64.const {bytes})))"#
        ))
    };
    assert_eq!(fixture.run(&asks(RANDOM_BYTES_MAX), Limits::default()).await.verdict, Verdict::Succeeded);
    for beyond in [RANDOM_BYTES_MAX + 1, 4 << 30, u64::MAX >> 1] {
        let ended = fixture.run(&asks(beyond), Limits::default()).await;
        assert!(matches!(ended.verdict, Verdict::Trapped(text) if text.contains("exceeds limit")));
    }
}

// FEATURES: E1
#[tokio::test]
async fn what_a_guest_hands_to_the_host_in_one_call_is_limited() {
    // A million times the same timer: four megabytes to the guest, many more to the host.
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
    let ended = Fixture::new().run(&poller, Limits { memory_bytes: 6 << 20, ..Limits::default() }).await;
    assert!(matches!(&ended.verdict, Verdict::Trapped(text) if text.contains("too much data")), "{:?}", ended.verdict);
}

// FEATURES: E1
#[tokio::test]
async fn a_guest_holds_only_so_many_things_of_the_host() {
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
    // A timer is two things: the time, and the waiting for it.
    assert_eq!(fixture.run(&holds(HANDLES_MAX / 2), Limits::default()).await.verdict, Verdict::Succeeded);
    let ended = fixture.run(&holds(HANDLES_MAX / 2 + 1), Limits::default()).await;
    assert!(matches!(ended.verdict, Verdict::Trapped(_)));
}

/// Writes ten bytes in one of the ways there are, and ends with the error code plus 100, if any.
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
async fn files_grow_up_to_their_limit_whichever_way_they_are_written() {
    /// Counted from 0, plus 100.
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
        for (file_bytes, verdict) in [(needed - 1, Verdict::ExitCode(refusal)), (needed, Verdict::Succeeded)] {
            let limits = Limits { file_bytes, ..Limits::default() };
            let task = Task { outputs: outputs.clone(), limits, ..task() };
            assert_eq!(fixture.run_task(&writer(way), task).await.verdict, verdict, "{way}");
        }
    }
}

// FEATURES: E1
#[tokio::test]
async fn a_guest_makes_only_so_many_files() {
    let hoarder = guest(
        r#"(data (i32.const 1024) "d")
        (func (export "run") (result i32)
          (local $directory i32) (local $made i32)
          (local.set $directory (call $directory (i32.const 0)))
          (loop $more
            ;; All but the first fail, as the directory exists; they are counted nevertheless.
            (call $create-directory-at (local.get $directory) (i32.const 1024) (i32.const 1) (i32.const 0))
            (local.set $made (i32.add (local.get $made) (i32.const 1)))
            (br_if $more (i32.ne (i32.load8_u (i32.const 1)) (i32.const 23))))
          (i32.store (i32.const 64) (local.get $made))
          (call $print (i32.const 64) (i32.const 4))
          i32.const 0)"#,
    );
    struct Counted(std::sync::atomic::AtomicU32);
    impl wasm::Sink for Counted {
        fn write(&self, _stream: wasm::Stream, bytes: &[u8]) {
            self.0.store(u32::from_le_bytes(bytes.try_into().unwrap()), std::sync::atomic::Ordering::Relaxed);
        }
    }
    let counted = std::sync::Arc::new(Counted(0.into()));
    let fixture = Fixture::new();
    let outputs = Some(fixture.make_directory("outputs"));
    let ended = fixture.run_task(&hoarder, Task { outputs, sink: counted.clone(), ..task() }).await;
    assert_eq!(ended.verdict, Verdict::Succeeded);
    assert_eq!(counted.0.load(std::sync::atomic::Ordering::Relaxed), ENTRIES_MAX + 1);
}
