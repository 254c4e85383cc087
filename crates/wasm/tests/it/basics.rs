//! Input and outcome of a run.

use std::time::Duration;

use bytes::Bytes;
use wasm::{GuestExit, Limits, RunSpec};

use crate::guests::{guest, noop, standalone};
use crate::support::{Fixture, recording_spec};

#[tokio::test]
async fn a_guest_that_does_nothing_succeeds() {
    let outcome = Fixture::new().run(&noop(), Limits::default()).await;
    assert_eq!(outcome.exit, GuestExit::Succeeded);
    assert_eq!(outcome.memory_peak_bytes, 64 << 10);
    assert_eq!(outcome.output_truncated_bytes, 0);
    assert_eq!(outcome.fuel_used, None);
    assert!(outcome.cpu > Duration::ZERO);
}

#[tokio::test]
async fn output_of_a_guest_goes_to_its_sink() {
    let printer = guest(
        r#"(data (i32.const 1024) "to stdoutto stderr")
        (func (export "run") (result i32)
          (call $print (i32.const 1024) (i32.const 9))
          (call $blocking-write-and-flush (call $get-stderr) (i32.const 1033) (i32.const 9) (i32.const 0))
          (call $stream-write (call $get-stdout) (i32.const 1024) (i32.const 2) (i32.const 0))
          i32.const 0)"#,
    );
    let (spec, printed) = recording_spec();
    assert_eq!(Fixture::new().run_spec(&printer, spec).await.exit, GuestExit::Succeeded);
    assert_eq!(printed.stdout(), "to stdoutto");
    assert_eq!(printed.stderr(), "to stderr");
}

#[tokio::test]
async fn a_guest_reads_its_standard_input_to_the_end() {
    let copier = guest(
        r#"(func (export "run") (result i32)
          (local $in i32)
          (local.set $in (call $get-stdin))
          (loop $more
            (call $blocking-read (local.get $in) (i64.const 7) (i32.const 0))
            (if (i32.eqz (i32.load8_u (i32.const 0)))
              (then
                (call $print (i32.load (i32.const 4)) (i32.load (i32.const 8)))
                (br $more))))
          i32.const 0)"#,
    );
    let fixture = Fixture::new();
    for input in ["", "seven b", "the quick brown fox"] {
        let (spec, printed) = recording_spec();
        let outcome = fixture.run_spec(&copier, RunSpec { stdin: Bytes::from(input), ..spec }).await;
        assert_eq!(outcome.exit, GuestExit::Succeeded);
        assert_eq!(printed.stdout(), input);
    }
}

#[tokio::test]
async fn a_guest_sees_its_arguments_and_its_environment_and_nothing_else() {
    let printer = guest(
        r#"(data (i32.const 1024) " \n")
        (func $print-list (param $at i32) (param $count i32) (param $after i32)
          (block $end (loop $more
            (br_if $end (i32.eqz (local.get $count)))
            (call $print (i32.load (local.get $at)) (i32.load (i32.add (local.get $at) (i32.const 4))))
            (call $print (local.get $after) (i32.const 1))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (local.set $count (i32.sub (local.get $count) (i32.const 1)))
            (br $more))))
        (func (export "run") (result i32)
          (call $get-arguments (i32.const 64))
          (call $print-list (i32.load (i32.const 64)) (i32.load (i32.const 68)) (i32.const 1024))
          (call $get-environment (i32.const 64))
          ;; Each variable is a pair of strings.
          (call $print-list
            (i32.load (i32.const 64)) (i32.mul (i32.const 2) (i32.load (i32.const 68))) (i32.const 1025))
          i32.const 0)"#,
    );
    let (spec, printed) = recording_spec();
    let args = vec!["program".into(), "one".into(), "ä".into()];
    let env = vec![("NAME".into(), "value".into())];
    Fixture::new().run_spec(&printer, RunSpec { args, env, ..spec }).await;
    assert_eq!(printed.stdout(), "program one ä NAME\nvalue\n");
}

#[tokio::test]
async fn the_way_a_guest_ends_is_its_verdict() {
    let fixture = Fixture::new();
    let endings = [
        ("i32.const 0", GuestExit::Succeeded),
        ("i32.const 1", GuestExit::ExitCode(1)),
        ("(call $exit (i32.const 0)) unreachable", GuestExit::Succeeded),
        ("(call $exit (i32.const 1)) unreachable", GuestExit::ExitCode(1)),
        ("(call $exit-with-code (i32.const 0)) unreachable", GuestExit::Succeeded),
        ("(call $exit-with-code (i32.const 42)) unreachable", GuestExit::ExitCode(42)),
        ("(call $exit-with-code (i32.const 255)) unreachable", GuestExit::ExitCode(255)),
    ];
    for (body, exit) in endings {
        let ending = guest(&format!("(func (export \"run\") (result i32) {body})"));
        assert_eq!(fixture.run(&ending, Limits::default()).await.exit, exit, "{body}");
    }
}

#[tokio::test]
async fn every_run_starts_with_fresh_state() {
    // Fails if an earlier run is visible in memory or in a global.
    let counter = standalone(
        r#"(memory 1) (global $runs (mut i32) (i32.const 0))
        (func (export "run") (result i32)
          (global.set $runs (i32.add (global.get $runs) (i32.const 1)))
          (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
          (i32.store (i32.const 60000) (i32.add (i32.load (i32.const 60000)) (i32.const 1)))
          (i32.ne (i32.const 3) (i32.add (global.get $runs)
            (i32.add (i32.load (i32.const 64)) (i32.load (i32.const 60000))))))"#,
    );
    let fixture = Fixture::new();
    for _ in 0..20 {
        assert_eq!(fixture.run(&counter, Limits::default()).await.exit, GuestExit::Succeeded);
    }
}

#[tokio::test]
async fn there_is_no_network() {
    // `access-denied` is error code 1.
    let caller = guest(
        r#"(func (export "run") (result i32)
          (call $create-tcp-socket (i32.const 0) (i32.const 0))
          (call $check (i32.const 4))
          i32.const 0)"#,
    );
    let outcome = Fixture::new().run(&caller, Limits::default()).await;
    assert_eq!(outcome.exit, GuestExit::ExitCode(101));
}
