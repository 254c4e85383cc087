//! What a rollback must not claim.

use engine::{Input, Refusal};
use model::job::End;
use model::reason::ReasonCode;
use model::state::State;
use model::verdict::OutputVerdict;
use model::workflow::{RollbackState, TaskState, WorkflowState};
use serde_json::json;

use crate::common::{Fixture, scan};

fn rollback(fixture: &Fixture, id: model::id::WorkflowId) -> (RollbackState, u32, u32, u32) {
    let rollback = fixture.workflow(id).rollback.expect("a rollback");
    (rollback.state, rollback.total, rollback.undone, rollback.failed)
}

// FEATURES: D5
#[test]
fn what_could_not_be_read_is_not_undone_by_trying_its_letter_again() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(
        r#"
name: saga
on_failure: compensate
tasks:
  a: {run: {echo: {value: x}}, compensation: {run: {echo: {value: "${result - 1}"}}}}
  b: {needs: a, run: {echo: {value: 1, fail: fatal}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let letter = fixture.compensations(id)[0].0;
    assert_eq!(fixture.reason(letter), Some(ReasonCode::CompensationUnreadable));
    assert_eq!(fixture.retry(letter), Err(Refusal::JobOfWorkflow(id)));
    assert_eq!(rollback(&fixture, id), (RollbackState::PartiallyRolledBack, 1, 0, 1));
}

// FEATURES: D5
#[test]
fn nothing_is_undone_in_the_name_of_a_result_that_was_quarantined() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(
        r#"
name: saga
on_failure: compensate
tasks:
  pay: {run: {echo: {value: {id: 7}}}, compensation: {run: {echo: {value: "refund ${result.id}"}}}}
  note: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: strike out}}}}
  word: {wait_for: go}
  bad: {needs: word, run: {echo: {value: 1, fail: fatal}}}
"#,
    );
    fixture.settle();
    let job = fixture.task_job(id, "pay");
    let attempt = fixture.job(job).attempt;
    fixture.give(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
    fixture.signal(id, "go", &json!(1)).unwrap();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(rollback(&fixture, id), (RollbackState::PartiallyRolledBack, 2, 1, 1));
    let undone = fixture.compensations(id);
    assert!(undone.iter().all(|(.., value)| *value != json!("refund null")), "{undone:?}");
}

// FEATURES: D5
#[test]
fn an_attempt_that_nobody_heard_of_again_is_undone_too() {
    for (undo, expected) in [
        ("undo slow", (RollbackState::RolledBack, 1, 1, 0)),
        ("undo ${result}", (RollbackState::PartiallyRolledBack, 1, 0, 1)),
    ] {
        let mut fixture = Fixture::with_runner(10);
        let id = fixture.flow(&format!(
            "name: race\non_failure: compensate\ntasks:\n  slow: {{run: {{echo: {{value: 1}}}}, compensation: \
             {{run: {{echo: {{value: '{undo}'}}}}}}}}\n  bad: {{run: {{echo: {{value: 3, fail: fatal}}}}}}\n"
        ));
        let [slow, bad] = ["slow", "bad"].map(|task| fixture.task_job(id, task));
        let ticket = fixture.current(slow);
        fixture.start(ticket);
        fixture.play(bad, End::Fatal);
        assert_eq!(fixture.flow_state(id), WorkflowState::Stopping);
        // Its runner never says that it has stopped.
        fixture.pass(61_000);
        assert_eq!(fixture.state(slow), State::Cancelled);
        while !fixture.flow_state(id).is_terminal() {
            let undo = fixture.compensations(id)[0].0;
            fixture.play(undo, End::Succeeded);
        }
        assert_eq!(rollback(&fixture, id), expected, "{undo}");
    }
}

// FEATURES: D5
#[test]
fn what_was_done_and_quarantined_at_once_is_undone() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(
        r#"
name: saga
on_failure: compensate
tasks:
  a: {run: {echo: {value: secret}}, compensation: {run: {echo: {value: undo a}}}}
"#,
    );
    let job = fixture.task_job(id, "a");
    let ticket = fixture.current(job);
    fixture.start(ticket);
    let policy = Some(Box::new(scan(OutputVerdict::Quarantine).decision));
    fixture.end_with(ticket, model::job::Outcome { policy, ..model::job::Outcome::of(End::Succeeded) });
    assert_eq!(fixture.state(job), State::Quarantined);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(rollback(&fixture, id), (RollbackState::RolledBack, 1, 1, 0));
}

// FEATURES: D5
#[test]
fn tasks_that_are_undone_differently_do_not_run_as_one() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(
        r#"
name: saga
on_failure: compensate
tasks:
  a: {merge: k, run: {echo: {value: 1}}}
  b: {merge: k, run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo b}}}}
  bad: {needs: [a, b], run: {echo: {value: 1, fail: fatal}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(rollback(&fixture, id), (RollbackState::RolledBack, 1, 1, 0));
    assert_eq!(fixture.task_state(id, "a"), TaskState::Succeeded);
}

#[test]
fn items_keep_what_they_were_made_of_whatever_becomes_of_it() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(
        r#"
name: items
tasks:
  list: {run: {echo: {value: [a, b, c]}}}
  each: {for_each: "${tasks.list.result}", concurrency: 1, run: {echo: {value: "work ${item}"}}}
outputs: ${tasks.each.result}
"#,
    );
    while fixture.task_state(id, "each") == TaskState::Waiting {
        assert!(fixture.echo_step());
    }
    let job = fixture.task_job(id, "list");
    let attempt = fixture.job(job).attempt;
    fixture.give(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed, "its list was quarantined");
    assert_eq!(fixture.task_state(id, "each"), TaskState::Succeeded, "what had begun went on");
    let done = fixture.records.jobs(model::batch::Keyspace::Done);
    assert!(done.iter().all(|job| job.result.as_ref().is_none_or(|result| !result.as_str().contains("null"))));
}

#[test]
fn a_quarantined_item_fails_its_list_with_and_without_a_crash() {
    for crash in [false, true] {
        let mut fixture = Fixture::with_runner(1);
        let id = fixture.flow(
            r#"
name: items
tasks:
  each: {for_each: [1, 2, 3], concurrency: 1, run: {echo: {value: "${item}"}}}
  after: {run: {echo: {value: "${tasks.each.result}"}}}
"#,
        );
        fixture.echo_step();
        fixture.echo_step();
        let plan = fixture.records.plan(id);
        let place = model::workflow::Place::item(plan.task("each").unwrap(), 0);
        let job = fixture.records.row(id, place).and_then(|row| row.job).unwrap();
        let attempt = fixture.job(job).attempt;
        fixture.give(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
        if crash {
            fixture.crash();
        }
        assert_eq!(fixture.run_to_end(id), WorkflowState::Failed, "crash: {crash}");
        assert_eq!(fixture.task_state(id, "after"), TaskState::Cancelled);
    }
}

#[test]
fn a_workflows_result_does_not_keep_what_was_taken_out_of_circulation() {
    let mut fixture = Fixture::with_runner(10);
    let id =
        fixture.flow("name: o\ntasks: {a: {run: {echo: {value: secret}}}}\noutputs: {said: \"${tasks.a.result}\"}");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    let job = fixture.task_job(id, "a");
    let attempt = fixture.job(job).attempt;
    fixture.give(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
    assert_eq!(fixture.result(id), json!({"said": null}));
}
