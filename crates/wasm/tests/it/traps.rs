//! What a program must not do. It ends the job, with words about what and where, and nothing else.

use wasm::{Limits, TEXT_BYTES_MAX, Verdict};

use crate::common::Fixture;
use crate::guests::{alone, guest, noop};

/// Runs it, expects it to trap, and then something harmless on the same executor.
async fn trap_of(fixture: &Fixture, component: &bytes::Bytes) -> String {
    let ended = fixture.run(component, Limits::default()).await;
    assert_eq!(fixture.run(&noop(), Limits::default()).await.verdict, Verdict::Succeeded);
    match ended.verdict {
        Verdict::Trapped(text) => text,
        verdict => panic!("{verdict:?}"),
    }
}

#[tokio::test]
async fn a_trap_is_the_jobs_failure_and_says_what_happened() {
    let fixture = Fixture::new();
    let traps = [
        ("unreachable", "unreachable"),
        ("(i32.load (i32.const -1))", "out of bounds memory access"),
        ("(i32.div_s (i32.const 1) (i32.const 0))", "divide by zero"),
        ("(i32.trunc_f32_s (f32.const nan))", "invalid conversion"),
        ("(call_indirect (result i32) (i32.const 7))", "undefined element"),
        ("(call $deeper)", "call stack exhausted"),
    ];
    for (body, expected) in traps {
        let component = alone(&format!(
            "(memory 1) (table 1 funcref)
             (func $deeper (result i32) (i32.add (call $deeper) (i32.const 1)))
             (func $culprit (export \"run\") (result i32) {body})"
        ));
        let text = trap_of(&fixture, &component).await;
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("\n  at ") && text.len() <= TEXT_BYTES_MAX, "{text}");
    }
}

#[tokio::test]
async fn a_trap_names_the_function_it_happened_in() {
    let component = alone(
        r#"(func $inner unreachable)
        (func $outer (export "run") (result i32) (call $inner) i32.const 0)"#,
    );
    let text = trap_of(&Fixture::new(), &component).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "wasm trap: wasm `unreachable` instruction executed");
    assert!(lines[1].starts_with("  at inner"), "{text}");
    assert!(lines[2].starts_with("  at outer"), "{text}");
}

#[tokio::test]
async fn a_trap_before_the_entry_is_reached_counts_as_well() {
    let component = alone(r#"(func $start unreachable) (start $start) (func (export "run") (result i32) i32.const 0)"#);
    assert!(trap_of(&Fixture::new(), &component).await.contains("unreachable"));
}

#[tokio::test]
async fn misuse_of_the_host_is_a_trap_too() {
    let fixture = Fixture::new();
    let misuses = [
        ("a handle that it never got", "(call $block (i32.const 77))", "unknown handle"),
        ("waiting for nothing", "(call $poll (i32.const 0) (i32.const 0) (i32.const 0))", "empty poll list"),
        ("a text beyond its memory", "(call $print (i32.const -8) (i32.const 64))", "out of bounds"),
        ("an answer to beyond its memory", "(call $get-environment (i32.const -8))", "out of bounds"),
    ];
    for (what, body, expected) in misuses {
        let component = guest(&format!("(func (export \"run\") (result i32) {body} i32.const 0)"));
        let text = trap_of(&fixture, &component).await;
        assert!(text.contains(expected), "{what}: {text}");
    }
}
