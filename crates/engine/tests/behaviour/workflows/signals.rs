//! Signals.

use engine::Refusal;
use model::batch::Keyspace;
use model::limits;
use model::reason::ReasonCode;
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::support::Fixture;

const WAITS: &str = r#"
name: waits
tasks:
  before: {run: {echo: {value: 1}}}
  listener: {needs: before, wait_for: go, timeout: 1h}
outputs: ${tasks.listener.result}
"#;

#[test]
fn a_signal_ends_the_task_that_waits_for_it() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(WAITS);
    fixture.settle();
    assert_eq!(fixture.task_state(id, "listener"), TaskState::Listening);
    assert_eq!(fixture.signal(id, "other", &json!(0)), Ok(()));
    assert_eq!(fixture.workflow_state(id), WorkflowState::Running);
    assert_eq!(fixture.signal(id, "go", &json!({"n": 1})), Ok(()));
    assert_eq!(fixture.workflow_state(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!({"n": 1}));
    assert_eq!(fixture.records.len(Keyspace::Signals), 0, "unconsumed signals are deleted at the end");
}

#[test]
fn an_early_signal_is_stored_and_survives_a_crash() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(WAITS);
    assert_eq!(fixture.signal(id, "go", &json!("early")), Ok(()));
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!("early"));
}

#[test]
fn a_signal_that_does_not_arrive_before_the_timeout_fails_the_task() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(WAITS);
    fixture.settle();
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.row(id, "listener").unwrap().reason.unwrap().code, ReasonCode::TaskTimedOut);
}

#[test]
fn a_finished_workflow_accepts_no_signal_and_stored_signals_are_limited() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(WAITS);
    for _ in 0..limits::SIGNALS_MAX {
        fixture.signal(id, "other", &json!(null)).unwrap();
    }
    assert_eq!(fixture.signal(id, "other", &json!(0)), Err(Refusal::TooManySignals { max: limits::SIGNALS_MAX }));
    fixture.cancel_workflow(id, false);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    let refused = Refusal::WorkflowState { state: WorkflowState::Cancelled, what: "signalled" };
    assert_eq!(fixture.signal(id, "go", &json!(0)), Err(refused));
    let unknown = model::id::WorkflowId(77);
    assert_eq!(fixture.signal(unknown, "go", &json!(0)), Err(Refusal::UnknownWorkflow(unknown)));
}

#[test]
fn each_waiting_task_consumes_one_signal() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(
        r#"
name: several
tasks:
  all: {for_each: [1, 2, 3], wait_for: go}
outputs: ${tasks.all.result}
"#,
    );
    for n in 0..3 {
        assert_eq!(fixture.workflow_state(id), WorkflowState::Running);
        fixture.signal(id, "go", &json!(n)).unwrap();
    }
    assert_eq!(fixture.workflow_state(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!([0, 1, 2]));
}
