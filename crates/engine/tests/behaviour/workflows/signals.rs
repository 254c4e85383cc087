//! Tasks that wait for a word from outside.

use engine::Refusal;
use model::batch::Keyspace;
use model::limits;
use model::reason::ReasonCode;
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::common::Fixture;

const WAITS: &str = r#"
name: waits
tasks:
  before: {run: {echo: {value: 1}}}
  word: {needs: before, wait_for: go, timeout: 1h}
outputs: ${tasks.word.result}
"#;

#[test]
fn a_signal_ends_the_task_that_waits_for_it() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(WAITS);
    fixture.settle();
    assert_eq!(fixture.task_state(id, "word"), TaskState::Listening);
    assert_eq!(fixture.signal(id, "other", &json!(0)), Ok(()));
    assert_eq!(fixture.flow_state(id), WorkflowState::Running);
    assert_eq!(fixture.signal(id, "go", &json!({"n": 1})), Ok(()));
    assert_eq!(fixture.flow_state(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!({"n": 1}));
    assert_eq!(fixture.records.len(Keyspace::Signals), 0, "what nobody took goes with the workflow's end");
}

#[test]
fn a_signal_that_comes_early_is_kept_over_a_crash() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(WAITS);
    assert_eq!(fixture.signal(id, "go", &json!("early")), Ok(()));
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!("early"));
}

#[test]
fn a_signal_that_does_not_come_in_time_fails_the_task() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(WAITS);
    fixture.settle();
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.row(id, "word").unwrap().reason.unwrap().code, ReasonCode::TaskTimedOut);
}

#[test]
fn a_finished_workflow_takes_no_signal_and_none_takes_too_many() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(WAITS);
    for _ in 0..limits::SIGNALS_MAX {
        fixture.signal(id, "other", &json!(null)).unwrap();
    }
    assert_eq!(fixture.signal(id, "other", &json!(0)), Err(Refusal::TooManySignals { max: limits::SIGNALS_MAX }));
    fixture.cancel_flow(id, false);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    let refused = Refusal::WorkflowState { state: WorkflowState::Cancelled, what: "signalled" };
    assert_eq!(fixture.signal(id, "go", &json!(0)), Err(refused));
    let unknown = model::id::WorkflowId(77);
    assert_eq!(fixture.signal(unknown, "go", &json!(0)), Err(Refusal::UnknownWorkflow(unknown)));
}

#[test]
fn each_waiting_task_takes_one_signal() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(
        r#"
name: several
tasks:
  all: {for_each: [1, 2, 3], wait_for: go}
outputs: ${tasks.all.result}
"#,
    );
    for n in 0..3 {
        assert_eq!(fixture.flow_state(id), WorkflowState::Running);
        fixture.signal(id, "go", &json!(n)).unwrap();
    }
    assert_eq!(fixture.flow_state(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!([0, 1, 2]));
}
