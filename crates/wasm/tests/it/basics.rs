//! What a guest is given, and what it gives back.

use std::time::Duration;

use bytes::Bytes;
use wasm::{Limits, Task, Verdict};

use crate::common::{Fixture, printing};
use crate::guests::{alone, guest, noop};

#[tokio::test]
async fn a_guest_that_does_nothing_succeeds() {
    let ended = Fixture::new().run(&noop(), Limits::default()).await;
    assert_eq!(ended.verdict, Verdict::Succeeded);
    assert_eq!(ended.memory_peak_bytes, 64 << 10);
    assert_eq!(ended.output_cut_bytes, 0);
    assert_eq!(ended.fuel_used, None);
    assert!(ended.cpu > Duration::ZERO);
}

#[tokio::test]
async fn what_a_guest_prints_goes_to_its_sink() {
    let printer = guest(
        r#"(data (i32.const 1024) "to stdoutto stderr")
        (func (export "run") (result i32)
          (call $print (i32.const 1024) (i32.const 9))
          (call $blocking-write-and-flush (call $get-stderr) (i32.const 1033) (i32.const 9) (i32.const 0))
          (call $stream-write (call $get-stdout) (i32.const 1024) (i32.const 2) (i32.const 0))
          i32.const 0)"#,
    );
    let (task, printed) = printing();
    assert_eq!(Fixture::new().run_task(&printer, task).await.verdict, Verdict::Succeeded);
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
        let (task, printed) = printing();
        let ended = fixture.run_task(&copier, Task { stdin: Bytes::from(input), ..task }).await;
        assert_eq!(ended.verdict, Verdict::Succeeded);
        assert_eq!(printed.stdout(), input);
    }
}

#[tokio::test]
async fn a_guest_sees_its_arguments_and_its_environment_and_nothing_else() {
    let teller = guest(
        r#"(data (i32.const 1024) " \n")
        (func $tell (param $at i32) (param $count i32) (param $after i32)
          (block $end (loop $more
            (br_if $end (i32.eqz (local.get $count)))
            (call $print (i32.load (local.get $at)) (i32.load (i32.add (local.get $at) (i32.const 4))))
            (call $print (local.get $after) (i32.const 1))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (local.set $count (i32.sub (local.get $count) (i32.const 1)))
            (br $more))))
        (func (export "run") (result i32)
          (call $get-arguments (i32.const 64))
          (call $tell (i32.load (i32.const 64)) (i32.load (i32.const 68)) (i32.const 1024))
          (call $get-environment (i32.const 64))
          ;; Each is a pair of texts.
          (call $tell (i32.load (i32.const 64)) (i32.mul (i32.const 2) (i32.load (i32.const 68))) (i32.const 1025))
          i32.const 0)"#,
    );
    let (task, printed) = printing();
    let args = vec!["program".into(), "one".into(), "ä".into()];
    let env = vec![("NAME".into(), "value".into())];
    Fixture::new().run_task(&teller, Task { args, env, ..task }).await;
    assert_eq!(printed.stdout(), "program one ä NAME\nvalue\n");
}

#[tokio::test]
async fn the_way_a_guest_ends_is_its_verdict() {
    let fixture = Fixture::new();
    let endings = [
        ("i32.const 0", Verdict::Succeeded),
        ("i32.const 1", Verdict::ExitCode(1)),
        ("(call $exit (i32.const 0)) unreachable", Verdict::Succeeded),
        ("(call $exit (i32.const 1)) unreachable", Verdict::ExitCode(1)),
        ("(call $exit-with-code (i32.const 0)) unreachable", Verdict::Succeeded),
        ("(call $exit-with-code (i32.const 42)) unreachable", Verdict::ExitCode(42)),
        ("(call $exit-with-code (i32.const 255)) unreachable", Verdict::ExitCode(255)),
    ];
    for (body, verdict) in endings {
        let ending = guest(&format!("(func (export \"run\") (result i32) {body})"));
        assert_eq!(fixture.run(&ending, Limits::default()).await.verdict, verdict, "{body}");
    }
}

#[tokio::test]
async fn every_run_begins_afresh() {
    // Fails if a former run has been here: in its memory or in a global.
    let forgetful = alone(
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
        assert_eq!(fixture.run(&forgetful, Limits::default()).await.verdict, Verdict::Succeeded);
    }
}

#[tokio::test]
async fn there_is_no_network() {
    // Access is denied: the second of the error codes, counted from 0.
    let caller = guest(
        r#"(func (export "run") (result i32)
          (call $create-tcp-socket (i32.const 0) (i32.const 0))
          (call $check (i32.const 4))
          i32.const 0)"#,
    );
    let ended = Fixture::new().run(&caller, Limits::default()).await;
    assert_eq!(ended.verdict, Verdict::ExitCode(101));
}
