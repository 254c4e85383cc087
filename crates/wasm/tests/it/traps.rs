//! Traps: the run ends with a reason and a backtrace, and the executor is unaffected.

use wasm::{GuestExit, Limits, TEXT_BYTES_MAX};

use crate::guests::{guest, noop, standalone};
use crate::support::Fixture;

/// Text of the component's trap. Then runs a no-op on the same executor.
async fn trap_of(fixture: &Fixture, component: &bytes::Bytes) -> String {
    let outcome = fixture.run(component, Limits::default()).await;
    assert_eq!(fixture.run(&noop(), Limits::default()).await.exit, GuestExit::Succeeded);
    match outcome.exit {
        GuestExit::Trapped(text) => text,
        exit => panic!("{exit:?}"),
    }
}

#[tokio::test]
async fn the_text_of_a_trap_has_the_reason_and_a_backtrace() {
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
        let component = standalone(&format!(
            "(memory 1) (table 1 funcref)
             (func $deeper (result i32) (i32.add (call $deeper) (i32.const 1)))
             (func $entry (export \"run\") (result i32) {body})"
        ));
        let text = trap_of(&fixture, &component).await;
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("\n  at ") && text.len() <= TEXT_BYTES_MAX, "{text}");
    }
}

#[tokio::test]
async fn the_backtrace_of_a_trap_names_the_functions() {
    let component = standalone(
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
async fn a_trap_during_instantiation_is_reported_as_a_trap() {
    let component =
        standalone(r#"(func $start unreachable) (start $start) (func (export "run") (result i32) i32.const 0)"#);
    assert!(trap_of(&Fixture::new(), &component).await.contains("unreachable"));
}

#[tokio::test]
async fn misuse_of_host_functions_is_a_trap() {
    let fixture = Fixture::new();
    let misuses = [
        ("unknown handle", "(call $block (i32.const 77))", "unknown handle"),
        ("empty poll list", "(call $poll (i32.const 0) (i32.const 0) (i32.const 0))", "empty poll list"),
        ("string outside the memory", "(call $print (i32.const -8) (i32.const 64))", "out of bounds"),
        ("result pointer outside the memory", "(call $get-environment (i32.const -8))", "out of bounds"),
    ];
    for (what, body, expected) in misuses {
        let component = guest(&format!("(func (export \"run\") (result i32) {body} i32.const 0)"));
        let text = trap_of(&fixture, &component).await;
        assert!(text.contains(expected), "{what}: {text}");
    }
}
