//! Delays and timeouts: none early, none twice.

use model::reason::ReasonCode;
use model::time::Millis;
use model::workflow::{TaskState, WorkflowState};

use crate::support::{Fixture, HOUR, START};

// FEATURES: D11
#[test]
fn overdue_delays_fire_at_start_and_none_fires_early() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(
        r#"
name: delays
tasks:
  short: {delay: 10s}
  long: {delay: 1h}
  until: {delay: {until: "2026-01-01T00:30:00Z"}}
  past: {delay: {until: "2020-01-01T00:00:00Z"}}
"#,
    );
    fixture.settle();
    assert_eq!(fixture.task_state(id, "past"), TaskState::Succeeded);
    fixture.advance(9_999);
    assert_eq!(fixture.task_state(id, "short"), TaskState::Sleeping);
    fixture.now = START + Millis(HOUR / 2 - 1);
    fixture.crash();
    fixture.settle();
    assert_eq!(fixture.task_state(id, "short"), TaskState::Succeeded);
    assert_eq!(fixture.task_state(id, "until"), TaskState::Sleeping);
    fixture.advance(1);
    assert_eq!(fixture.task_state(id, "until"), TaskState::Succeeded);
    let ended = fixture.row(id, "short").unwrap().ended_at;
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.row(id, "short").unwrap().ended_at, ended, "the delay fired once");
    assert_eq!(fixture.row(id, "long").unwrap().ended_at, Some(START + Millis(HOUR)));
}

// FEATURES: D11
#[test]
fn very_many_delays_due_at_once_fire_in_steps_of_bounded_size() {
    let mut fixture = Fixture::with_runner(1);
    fixture.config.step_bytes_max = 20_000;
    fixture.crash();
    let id = fixture.start_workflow("name: many\ntasks: {all: {for_each: \"${range(2000)}\", delay: 5s}}");
    fixture.settle();
    assert_eq!(fixture.workflow(id).items.of(TaskState::Sleeping), 2_000);
    fixture.advance(4_990);
    assert_eq!(fixture.workflow(id).items.of(TaskState::Sleeping), 2_000);
    fixture.advance(1_000);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert!(fixture.largest_commit < 80_000, "{}", fixture.largest_commit);
}

#[test]
fn a_workflow_is_stopped_at_its_timeout() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow("name: slow\ntimeout: 1m\ntasks: {a: {delay: 1h}, b: {run: {echo: {value: 1}}}}");
    fixture.advance(61_000);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.workflow(id).reason.unwrap().code, ReasonCode::WorkflowTimedOut);
    assert_eq!(fixture.task_state(id, "a"), TaskState::Cancelled);
}

#[test]
fn a_task_fails_at_its_timeout_whatever_its_retries() {
    let mut fixture = Fixture::new();
    let id = fixture.start_workflow("name: slow\ntasks: {a: {run: {echo: {value: 1}}, timeout: 1m}}");
    fixture.advance(61_000);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.row(id, "a").unwrap().reason.unwrap().code, ReasonCode::DeadlinePassed);
}
