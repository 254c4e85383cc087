//! Events and calls, their state and their effects.

use std::sync::Arc;

use bytes::Bytes;
use modules::{CallError, Capabilities, FailureKind, Jobs, Limits, LogLevel, LogLine, TimerChange};

use crate::guests;
use crate::support::Fixture;

#[test]
fn state_is_kept_by_key() {
    let fixture = Fixture::new();
    let mut counter = fixture.container(&guests::counter(), Limits::default());
    assert_eq!(counter.count("a", "add"), 1);
    assert_eq!(counter.count("a", "add"), 2);
    assert_eq!(counter.count("b", "add"), 1);
    assert_eq!(counter.event("a", b""), Ok(Ok(())));
    assert_eq!(counter.count("a", "get"), 3);
    assert_eq!(counter.state.value("a", "count"), Some(Bytes::copy_from_slice(&3_i64.to_le_bytes())));
}

#[test]
fn an_error_of_the_module_changes_nothing_and_the_instance_goes_on() {
    let fixture = Fixture::new();
    let mut counter = fixture.container(&guests::counter(), Limits::default());
    assert_eq!(counter.count("a", "add"), 1);
    let (reply, effects) = counter.call_with_effects("a", "refuse", b"").unwrap();
    assert_eq!(reply, Err(CallError::Refused("refused on purpose".into())));
    assert!(effects.is_empty());
    assert_eq!(counter.event("a", b"x").unwrap(), Err("refused on purpose".into()));
    assert_eq!(counter.call("a", "Unknown", b"").unwrap(), Err(CallError::UnknownMethod));
    assert_eq!(counter.count("a", "get"), 1);
}

#[test]
fn a_trap_changes_nothing_and_a_new_instance_has_the_state() {
    let fixture = Fixture::new();
    let mut counter = fixture.container(&guests::counter(), Limits::default());
    assert_eq!(counter.count("a", "add"), 1);
    let failure = counter.call("a", "trap", b"").unwrap_err();
    assert_eq!(failure.kind, FailureKind::Trap);
    assert!(failure.text.contains("unreachable"), "{failure}");
    assert_eq!(counter.count("a", "add"), 2);
}

#[test]
fn a_query_reads_and_cannot_write() {
    let fixture = Fixture::new();
    let mut counter = fixture.container(&guests::counter(), Limits::default());
    counter.count("a", "add");
    assert_eq!(counter.query("a", "get").unwrap().unwrap().as_ref(), 1_i64.to_le_bytes());
    let failure = counter.query("a", "add").unwrap_err();
    assert!(failure.text.contains("a query cannot change anything"), "{failure}");
    assert_eq!(counter.count("a", "get"), 1);
}

struct NoJobs;

impl Jobs for NoJobs {
    fn status(&self, _: &str) -> Option<String> {
        None
    }
}

#[test]
fn jobs_are_effects_with_a_handle_and_need_the_capability() {
    let fixture = Fixture::new();
    let mut counter = fixture.container(&guests::counter(), Limits::default());
    assert!(matches!(counter.call("a", "jobs", b"").unwrap(), Err(CallError::Refused(_))));
    let mut counter = fixture.container(&guests::counter(), Limits::default());
    counter.capabilities = Capabilities { jobs: Some(Arc::new(NoJobs)), http: None };
    let (reply, effects) = counter.call_with_effects("a", "jobs", b"").unwrap();
    assert_eq!(reply.unwrap(), "counter/0/1/0");
    assert_eq!(effects.jobs, [r#"{"run":{"echo":{"value":1}}}"#]);
}

#[test]
fn timers_log_lines_and_the_time_of_the_invocation() {
    let fixture = Fixture::new();
    let mut counter = fixture.container(&guests::counter(), Limits::default());
    let (_, effects) = counter.call_with_effects("a", "delay", b"payload").unwrap();
    let timer = TimerChange::Set { delay_ms: 1500, payload: Bytes::from_static(b"payload") };
    assert_eq!(effects.timers.into_iter().collect::<Vec<_>>(), [("count".to_owned(), timer)]);
    let (_, effects) = counter.call_with_effects("a", "say", b"hello").unwrap();
    assert_eq!(effects.log, [LogLine { level: LogLevel::Warn, text: "hello".into() }]);
    assert!(effects.is_empty());
    assert_eq!(counter.count("a", "now"), 1_700_000_000_000);
}

#[test]
fn optional_exports_are_called() {
    let fixture = Fixture::new();
    let mut full = fixture.container(&guests::full(), Limits::default());
    let invocation = full.invocation("a", false);
    full.invoke("a", |instance| instance.on_restart(invocation, "a trap", 1).map(|effects| ((), effects))).unwrap();
    assert_eq!(full.count("a", "get"), 1000);
    let invocation = full.invocation("a", false);
    full.invoke("a", |instance| instance.upgrade(invocation, "1")).unwrap().0.unwrap();
    assert_eq!(full.count("a", "get"), 7);
    let invocation = full.invocation("", true);
    let replies = [b"x".to_vec(), b"y".to_vec(), b"z".to_vec()];
    let combined = full.invoke("", |instance| {
        instance.aggregate(invocation, "get", &replies).map(|combined| (combined, modules::Effects::default()))
    });
    assert_eq!(combined.unwrap().0.unwrap().as_ref(), [3]);
}
