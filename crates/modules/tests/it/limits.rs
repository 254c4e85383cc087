//! Limits of instances and invocations.

use std::time::Duration;

use modules::{CallError, FailureKind, Limits};

use crate::guests;
use crate::support::Fixture;

#[test]
fn an_endless_handler_ends_at_its_deadline_or_without_fuel() {
    let fixture = Fixture::new();
    let limits = Limits { deadline: Duration::from_millis(50), ..Limits::default() };
    let mut counter = fixture.container(&guests::counter(), limits);
    assert_eq!(counter.call("a", "loop", b"").unwrap_err().kind, FailureKind::TimedOut);
    assert_eq!(counter.count("a", "add"), 1);
    let limits = Limits { fuel: Some(1_000_000), ..Limits::default() };
    let mut counter = fixture.container(&guests::counter(), limits);
    assert_eq!(counter.call("a", "loop", b"").unwrap_err().kind, FailureKind::OutOfFuel);
    // Every invocation has the whole budget.
    for count in 1..=3 {
        assert_eq!(counter.count("a", "add"), count);
    }
}

#[test]
fn memory_is_limited() {
    let fixture = Fixture::new();
    let limits = Limits { memory_bytes: 8 << 20, ..Limits::default() };
    let mut counter = fixture.container(&guests::counter(), limits);
    assert_eq!(counter.call("a", "memory", b"").unwrap_err().kind, FailureKind::OutOfMemory);
    assert_eq!(counter.count("a", "add"), 1);
}

#[test]
fn a_reply_beyond_the_limit_is_a_failure() {
    let fixture = Fixture::new();
    let limits = Limits { reply_bytes: 100_000, ..Limits::default() };
    let mut counter = fixture.container(&guests::counter(), limits);
    let failure = counter.call("a", "big", b"").unwrap_err();
    assert_eq!(failure.kind, FailureKind::TooLarge);
    assert!(failure.text.contains("131072 bytes"), "{failure}");
}

#[test]
fn values_and_state_beyond_their_limits_are_refused_to_the_module() {
    let fixture = Fixture::new();
    let limits = Limits { value_bytes: 100, state_bytes: 150, ..Limits::default() };
    let mut counter = fixture.container(&guests::counter(), limits);
    let refused = Ok(Err(CallError::Refused("refused on purpose".into())));
    assert_eq!(counter.call("a", "write", &[0; 101]), refused);
    assert!(counter.call("a", "write", &[0; 100]).unwrap().is_ok());
    // 105 bytes are taken: a second key does not fit, an overwritten value does.
    assert_eq!(counter.call("b", "write", &[0; 100]), refused);
    assert!(counter.call("a", "write", &[0; 99]).unwrap().is_ok());
    assert!(counter.call("b", "write", &[0; 30]).unwrap().is_ok());
}

#[test]
fn an_invocation_that_changes_too_much_fails() {
    let fixture = Fixture::new();
    let limits = Limits { effects_bytes: 100, ..Limits::default() };
    let mut counter = fixture.container(&guests::counter(), limits);
    assert_eq!(counter.call("a", "write", &[0; 200]).unwrap_err().kind, FailureKind::TooLarge);
    assert!(counter.call("a", "write", &[0; 50]).unwrap().is_ok());
}

#[test]
fn log_text_beyond_the_limit_is_counted() {
    let fixture = Fixture::new();
    let mut counter = fixture.container(&guests::counter(), Limits::default());
    let (_, effects) = counter.call_with_effects("a", "say", &[b'x'; 70_000]).unwrap();
    assert_eq!(effects.log[0].text.len(), 64 << 10);
    assert_eq!(effects.log_bytes_dropped, 70_000 - (64 << 10));
}
