//! Rollback: compensation of succeeded tasks.

use engine::Answer;
use model::reason::ReasonCode;
use model::state::State;
use model::workflow::{RollbackState, TaskState, WorkflowState};
use serde_json::json;

use crate::support::Fixture;

const ORDER: &str = r#"
name: order
on_failure: compensate
tasks:
  reserve:
    run: {echo: {value: {id: 1}}}
    compensation: {run: {echo: {value: "release ${result.id}"}}}
  charge:
    needs: reserve
    run: {echo: {value: {id: 2}}}
    compensation: {run: {echo: {value: "refund ${result.id}"}}}
  ship:
    needs: charge
    run: {echo: {value: 3, fail: error}}
    retry: 0
    compensation: {run: {echo: {value: "call back"}}}
"#;

// FEATURES: D5
#[test]
fn succeeded_tasks_are_compensated_last_first() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(ORDER);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let record = fixture.workflow(id);
    let rollback = record.rollback.unwrap();
    assert_eq!(rollback.state, RollbackState::RolledBack);
    assert_eq!((rollback.total, rollback.compensated, rollback.failed), (2, 2, 0));
    let compensated: Vec<_> = fixture.compensations(id).into_iter().map(|(_, state, value)| (state, value)).collect();
    assert_eq!(compensated, [(State::Succeeded, json!("refund 2")), (State::Succeeded, json!("release 1"))]);
}

// FEATURES: D5
#[test]
fn a_crash_at_any_commit_does_not_change_a_rollback() {
    for crash_at in 1..40 {
        let mut fixture = Fixture::with_runner(10);
        fixture.crash_at = Some(crash_at);
        let request = fixture.next_request();
        let workflow = crate::support::workflows::new_workflow(ORDER, &json!({}));
        fixture.input(engine::Input::StartWorkflow { request, workflow });
        let Some(record) = fixture.records.workflows(model::batch::Keyspace::Workflows).first().cloned() else {
            continue;
        };
        let id = record.id;
        assert_eq!(fixture.run_to_end(id), WorkflowState::Failed, "crash at {crash_at}");
        let compensated: Vec<_> =
            fixture.compensations(id).into_iter().map(|(_, state, value)| (state, value)).collect();
        assert_eq!(compensated, [(State::Succeeded, json!("refund 2")), (State::Succeeded, json!("release 1"))]);
        assert_eq!(fixture.workflow(id).rollback.unwrap().state, RollbackState::RolledBack);
    }
}

// FEATURES: D5
#[test]
fn a_failed_compensation_leaves_a_dead_letter_and_a_partial_rollback() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: order
on_failure: compensate
tasks:
  first: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo first}}}}
  unreadable: {needs: first, run: {echo: {value: x}}, compensation: {run: {echo: {value: "${result - 1}"}}}}
  failing: {needs: unreadable, run: {echo: {value: 1}}, compensation: {run: {echo: {value: 1, fail: fatal}}}}
  bad: {needs: failing, run: {echo: {value: 1, fail: fatal}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let rollback = fixture.workflow(id).rollback.unwrap();
    assert_eq!(rollback.state, RollbackState::PartiallyRolledBack);
    let compensated = fixture.compensations(id);
    assert_eq!((rollback.total, rollback.compensated, rollback.failed), (3, 1, 2), "{compensated:?}");
    assert_eq!(compensated.iter().map(|(_, state, _)| *state).collect::<Vec<_>>(), [State::Failed, State::Succeeded]);
    assert!(fixture.records.dead_letter(compensated[0].0).is_some());
    let unreadable = fixture.compensation_letter(id, "unreadable");
    let unreadable = fixture.records.dead_letter(unreadable).unwrap();
    assert_eq!(unreadable.reason, Some(ReasonCode::CompensationUnreadable));
}

// FEATURES: D5
#[test]
fn live_tasks_are_stopped_first_and_one_that_still_succeeds_is_compensated() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: race
on_failure: compensate
tasks:
  slow: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo slow}}}}
  stopped: {run: {echo: {value: 2}}, compensation: {run: {echo: {value: undo stopped}}}}
  bad: {run: {echo: {value: 3, fail: fatal}}}
"#,
    );
    let [slow, stopped, bad] = ["slow", "stopped", "bad"].map(|task| fixture.task_job(id, task));
    for job in [slow, stopped] {
        let attempt_ref = fixture.current(job);
        fixture.start(attempt_ref);
    }
    fixture.run_attempt(bad, model::job::End::Fatal);
    assert_eq!(fixture.workflow_state(id), WorkflowState::Stopping);
    assert_eq!(fixture.compensations(id), []);
    fixture.end(fixture.current(slow), model::job::End::Succeeded);
    assert_eq!(fixture.compensations(id), [], "nothing is compensated while something is live");
    fixture.end(fixture.current(stopped), model::job::End::Stopped);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.task_state(id, "slow"), TaskState::Succeeded);
    assert_eq!(fixture.task_state(id, "stopped"), TaskState::Cancelled);
    let compensated: Vec<_> = fixture.compensations(id).into_iter().map(|(.., value)| value).collect();
    assert_eq!(compensated, [json!("undo slow")]);
}

#[test]
fn cancelling_with_compensate_rolls_back() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: cancelled
tasks:
  a: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo a}}}}
  b: {needs: a, delay: 1h}
"#,
    );
    fixture.settle();
    assert_eq!(fixture.task_state(id, "b"), TaskState::Sleeping);
    let answer = fixture.cancel_workflow(id, true);
    assert!(matches!(answer, Answer::Workflow(_)), "{answer:?}");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    assert_eq!(fixture.compensations(id).len(), 1);
    assert_eq!(fixture.workflow(id).rollback.unwrap().state, RollbackState::RolledBack);
}

// FEATURES: D5
#[test]
fn a_sub_workflow_is_rolled_back_in_its_order() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: parent
on_failure: compensate
workflows:
  child:
    name: child
    tasks:
      x: {run: {echo: {value: x}}, compensation: {run: {echo: {value: undo x}}}}
      y: {needs: x, run: {echo: {value: y}}, compensation: {run: {echo: {value: undo y}}}}
tasks:
  before: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo before}}}}
  sub: {needs: before, workflow: child}
  bad: {needs: sub, run: {echo: {value: 3, fail: fatal}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let jobs = fixture.records.jobs(model::batch::Keyspace::Done);
    let mut compensated: Vec<_> = jobs
        .iter()
        .filter(|job| job.origin.as_ref().is_some_and(|origin| origin.compensation))
        .map(|job| (job.id, job.result.as_ref().unwrap().as_str().to_owned()))
        .collect();
    compensated.sort();
    let compensated: Vec<_> = compensated.into_iter().map(|(_, value)| value).collect();
    assert_eq!(compensated, ["\"undo y\"", "\"undo x\"", "\"undo before\""]);
    assert_eq!(fixture.workflow(id).rollback.unwrap().state, RollbackState::RolledBack);
}
