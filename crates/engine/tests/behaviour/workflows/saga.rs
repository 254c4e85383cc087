//! Undoing what was done.

use engine::Answer;
use model::reason::ReasonCode;
use model::state::State;
use model::workflow::{RollbackState, TaskState, WorkflowState};
use serde_json::json;

use crate::common::Fixture;

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
fn what_was_done_is_undone_last_first() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(ORDER);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let record = fixture.workflow(id);
    let rollback = record.rollback.unwrap();
    assert_eq!(rollback.state, RollbackState::RolledBack);
    assert_eq!((rollback.total, rollback.undone, rollback.failed), (2, 2, 0));
    let undone: Vec<_> = fixture.compensations(id).into_iter().map(|(_, state, value)| (state, value)).collect();
    assert_eq!(undone, [(State::Succeeded, json!("refund 2")), (State::Succeeded, json!("release 1"))]);
}

// FEATURES: D5
#[test]
fn a_crash_at_every_commit_changes_nothing_of_a_rollback() {
    for crash_at in 1..40 {
        let mut fixture = Fixture::with_runner(10);
        fixture.crash_at = Some(crash_at);
        let request = fixture.next_request();
        let workflow = crate::common::flows::new_workflow(ORDER, &json!({}));
        fixture.give(engine::Input::StartWorkflow { request, workflow });
        let Some(record) = fixture.records.workflows(model::batch::Keyspace::Workflows).first().cloned() else {
            continue;
        };
        let id = record.id;
        assert_eq!(fixture.run_to_end(id), WorkflowState::Failed, "crash at {crash_at}");
        let undone: Vec<_> = fixture.compensations(id).into_iter().map(|(_, state, value)| (state, value)).collect();
        assert_eq!(undone, [(State::Succeeded, json!("refund 2")), (State::Succeeded, json!("release 1"))]);
        assert_eq!(fixture.workflow(id).rollback.unwrap().state, RollbackState::RolledBack);
    }
}

// FEATURES: D5
#[test]
fn what_cannot_be_undone_is_a_dead_letter_and_the_saga_says_so() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(
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
    let undone = fixture.compensations(id);
    assert_eq!((rollback.total, rollback.undone, rollback.failed), (3, 1, 2), "{undone:?}");
    assert_eq!(
        undone.iter().map(|(_, state, _)| *state).collect::<Vec<_>>(),
        [State::Failed, State::Failed, State::Succeeded]
    );
    assert_eq!(fixture.reason(undone[1].0), Some(ReasonCode::CompensationUnreadable));
    assert!(fixture.records.dead_letter(undone[0].0).is_some());
    assert!(fixture.records.dead_letter(undone[1].0).is_some());
}

// FEATURES: D5
#[test]
fn live_tasks_are_stopped_first_and_one_that_still_succeeds_is_undone_too() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(
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
        let ticket = fixture.current(job);
        fixture.start(ticket);
    }
    fixture.play(bad, model::job::End::Fatal);
    assert_eq!(fixture.flow_state(id), WorkflowState::Stopping);
    assert_eq!(fixture.compensations(id), []);
    fixture.end(fixture.current(slow), model::job::End::Succeeded);
    assert_eq!(fixture.compensations(id), [], "nothing is undone while something is live");
    fixture.end(fixture.current(stopped), model::job::End::Stopped);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.task_state(id, "slow"), TaskState::Succeeded);
    assert_eq!(fixture.task_state(id, "stopped"), TaskState::Cancelled);
    let undone: Vec<_> = fixture.compensations(id).into_iter().map(|(.., value)| value).collect();
    assert_eq!(undone, [json!("undo slow")]);
}

#[test]
fn cancelling_undoes_what_was_done_if_asked_to() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(
        r#"
name: cancelled
tasks:
  a: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo a}}}}
  b: {needs: a, delay: 1h}
"#,
    );
    fixture.settle();
    assert_eq!(fixture.task_state(id, "b"), TaskState::Sleeping);
    let answer = fixture.cancel_flow(id, true);
    assert!(matches!(answer, Answer::Workflow(_)), "{answer:?}");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    assert_eq!(fixture.compensations(id).len(), 1);
    assert_eq!(fixture.workflow(id).rollback.unwrap().state, RollbackState::RolledBack);
}

// FEATURES: D5
#[test]
fn a_sub_workflow_undoes_its_own_steps_in_its_turn() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(
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
    let mut undone: Vec<_> = jobs
        .iter()
        .filter(|job| job.origin.as_ref().is_some_and(|origin| origin.compensation))
        .map(|job| (job.id, job.result.as_ref().unwrap().as_str().to_owned()))
        .collect();
    undone.sort();
    let undone: Vec<_> = undone.into_iter().map(|(_, value)| value).collect();
    assert_eq!(undone, ["\"undo y\"", "\"undo x\"", "\"undo before\""]);
    assert_eq!(fixture.workflow(id).rollback.unwrap().state, RollbackState::RolledBack);
}
