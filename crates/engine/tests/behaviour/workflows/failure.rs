//! Effects of a task's failure on other tasks.

use model::reason::ReasonCode;
use model::workflow::{TaskState, WorkflowState};

use crate::support::Fixture;

#[test]
fn a_failure_cancels_its_dependents_and_lets_other_tasks_finish() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: failing
tasks:
  bad: {run: {echo: {value: 1, fail: error}}, retry: 1}
  after: {needs: bad, run: {echo: {value: 2}}}
  later: {needs: after, run: {echo: {value: 3}}}
  other: {run: {echo: {value: 4}}}
  after_other: {needs: other, run: {echo: {value: 5}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.task_state(id, "bad"), TaskState::Failed);
    assert_eq!(fixture.task_state(id, "after"), TaskState::Cancelled);
    assert_eq!(fixture.task_state(id, "later"), TaskState::Cancelled);
    assert_eq!(fixture.task_state(id, "after_other"), TaskState::Succeeded);
    let reason = fixture.workflow(id).reason.unwrap();
    assert_eq!(reason.code, ReasonCode::TaskFailed);
    assert!(reason.message.unwrap().contains("`bad`"));
}

#[test]
fn a_failure_in_an_epoch_cancels_the_later_ones() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: failing
epochs: [one, two, three]
tasks:
  bad: {epoch: one, run: {echo: {value: 1, fail: fatal}}}
  good: {epoch: one, run: {echo: {value: 1}}}
  next: {epoch: two, run: {echo: {value: 2}}}
  last: {epoch: three, run: {echo: {value: 3}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.task_state(id, "good"), TaskState::Succeeded);
    assert_eq!(fixture.task_state(id, "next"), TaskState::Cancelled);
    assert_eq!(fixture.task_state(id, "last"), TaskState::Cancelled);
}

#[test]
fn a_tolerated_failure_lets_its_dependents_run() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: tolerant
tasks:
  bad: {run: {echo: {value: 1, fail: fatal}}, on_failure: continue}
  after: {run: {echo: {value: "${tasks.bad.state} ${tasks.bad.result ?? 'nothing'}"}}}
outputs: ${tasks.after.result}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), serde_json::json!("failed nothing"));
}

#[test]
fn a_template_error_fails_its_task_with_a_reason() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: wrong
tasks:
  a: {run: {echo: {value: text}}}
  b: {run: {echo: {value: "${tasks.a.result - 1}"}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let reason = fixture.row(id, "b").unwrap().reason.unwrap();
    assert_eq!(reason.code, ReasonCode::TemplateError);
}
