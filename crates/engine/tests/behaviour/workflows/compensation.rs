//! Compensations in special cases: unreadable, quarantined, unknown progress.

use engine::{Answer, Input, Refusal};
use model::dead_letter::UnsubmittedCompensation;
use model::id::{JobId, WorkflowId};
use model::job::End;
use model::reason::ReasonCode;
use model::state::State;
use model::verdict::OutputVerdict;
use model::workflow::{RollbackState, TaskState, WorkflowState};
use serde_json::json;

use crate::support::{Fixture, scan};

fn rollback(fixture: &Fixture, id: model::id::WorkflowId) -> (RollbackState, u32, u32, u32) {
    let rollback = fixture.workflow(id).rollback.expect("a rollback");
    (rollback.state, rollback.total, rollback.compensated, rollback.failed)
}

// FEATURES: D5
#[test]
fn an_unreadable_compensation_leaves_a_dead_letter_without_a_job() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: saga
on_failure: compensate
tasks:
  a: {run: {echo: {value: x}}, compensation: {run: {echo: {value: "${result - 1}"}}}}
  b: {needs: a, run: {echo: {value: 1, fail: fatal}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.compensations(id), []);
    let letter = fixture.compensation_letter(id, "a");
    let record = fixture.records.dead_letter(letter).unwrap();
    assert_eq!(record.reason, Some(ReasonCode::CompensationUnreadable));
    assert_eq!(record.compensation, Some(UnsubmittedCompensation { workflow: id, task: "a".to_owned() }));
    assert!(matches!(fixture.retry_compensation(id, letter), Err(Refusal::CompensationUnreadable { .. })));
    assert_eq!(rollback(&fixture, id), (RollbackState::PartiallyRolledBack, 1, 0, 1));
    assert_eq!(fixture.purge_compensation(id, letter), Ok(()));
    assert_eq!(fixture.records.dead_letter(letter), None);
    assert_eq!(fixture.retry_compensation(id, letter), Err(Refusal::UnknownDeadLetter(letter)));
    assert_eq!(fixture.purge_compensation(id, letter), Err(Refusal::UnknownDeadLetter(letter)));
}

/// A saga whose compensation of `pay` needs a quarantined result.
fn quarantined_saga(fixture: &mut Fixture) -> (WorkflowId, JobId) {
    let id = fixture.start_workflow(
        r#"
name: saga
on_failure: compensate
tasks:
  pay: {run: {echo: {value: {id: 7}}}, compensation: {run: {echo: {value: "refund ${result.id}"}}}}
  listener: {wait_for: go}
  bad: {needs: listener, run: {echo: {value: 1, fail: fatal}}}
"#,
    );
    fixture.settle();
    let job = fixture.task_job(id, "pay");
    let attempt = fixture.job(job).attempt;
    fixture.input(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
    fixture.signal(id, "go", &json!(1)).expect("a running workflow takes signals");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    (id, job)
}

// FEATURES: D5, D8
#[test]
fn a_dead_letter_is_retried_after_the_release_of_the_result_it_needs() {
    let mut fixture = Fixture::with_runner(10);
    let (id, job) = quarantined_saga(&mut fixture);
    let letter = fixture.compensation_letter(id, "pay");
    assert!(matches!(fixture.retry_compensation(id, letter), Err(Refusal::CompensationUnreadable { .. })));
    let released = fixture.request(|request| Input::Release { request, job, by: None });
    assert!(matches!(released, Answer::Job(_)), "{released:?}");
    assert_eq!(fixture.retry_compensation(id, letter), Ok(letter));
    assert_eq!(fixture.records.dead_letter(letter), None);
    assert_eq!(fixture.compensations(id), [(letter, State::Dispatched, json!("refund 7"))]);
    fixture.run_attempt(letter, End::Succeeded);
    assert_eq!(rollback(&fixture, id), (RollbackState::RolledBack, 1, 1, 0));
}

#[test]
fn the_dead_letter_of_a_compensation_goes_with_its_workflow() {
    for rerun in [false, true] {
        let mut fixture = Fixture::with_runner(10);
        let (id, _) = quarantined_saga(&mut fixture);
        let letter = fixture.compensation_letter(id, "pay");
        let answer = if rerun {
            fixture.request(|request| Input::RerunWorkflow { request, workflow: id, from: None, by: None })
        } else {
            fixture.request(|request| Input::RemoveWorkflow { request, workflow: id, by: None })
        };
        assert!(matches!(answer, Answer::Workflow(_) | Answer::WorkflowRemoved), "{answer:?}");
        assert_eq!(fixture.records.dead_letter(letter), None, "rerun: {rerun}");
    }
}

#[test]
fn a_workflow_with_failed_compensations_stays_as_long_as_dead_letters() {
    let mut fixture = Fixture::with_runner(10);
    let (id, _) = quarantined_saga(&mut fixture);
    let letter = fixture.compensation_letter(id, "pay");
    let (retention, letters) = (fixture.config.retention, fixture.config.dead_letter_retention);
    assert!(retention < letters);
    // Jobs are removed with their retention.
    fixture.exact_counters = false;
    let sweeps = 2 * fixture.config.sweep_interval.0;
    fixture.now = fixture.now + retention;
    fixture.advance(sweeps);
    assert!(fixture.records.dead_letter(letter).is_some());
    fixture.now = fixture.now + (letters - retention);
    fixture.advance(sweeps);
    assert_eq!(fixture.records.dead_letter(letter), None);
    assert!(fixture.records.workflow(id).is_none());
}

// FEATURES: D5
#[test]
fn no_compensation_uses_a_quarantined_result() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: saga
on_failure: compensate
tasks:
  pay: {run: {echo: {value: {id: 7}}}, compensation: {run: {echo: {value: "refund ${result.id}"}}}}
  note: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: strike out}}}}
  listener: {wait_for: go}
  bad: {needs: listener, run: {echo: {value: 1, fail: fatal}}}
"#,
    );
    fixture.settle();
    let job = fixture.task_job(id, "pay");
    let attempt = fixture.job(job).attempt;
    fixture.input(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
    fixture.signal(id, "go", &json!(1)).unwrap();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(rollback(&fixture, id), (RollbackState::PartiallyRolledBack, 2, 1, 1));
    let compensated = fixture.compensations(id);
    assert!(compensated.iter().all(|(.., value)| *value != json!("refund null")), "{compensated:?}");
}

// FEATURES: D5
#[test]
fn an_attempt_with_unknown_progress_is_compensated() {
    for (undo, expected) in [
        ("undo slow", (RollbackState::RolledBack, 1, 1, 0)),
        ("undo ${result}", (RollbackState::PartiallyRolledBack, 1, 0, 1)),
    ] {
        let mut fixture = Fixture::with_runner(10);
        let id = fixture.start_workflow(&format!(
            "name: race\non_failure: compensate\ntasks:\n  slow: {{run: {{echo: {{value: 1}}}}, compensation: \
             {{run: {{echo: {{value: '{undo}'}}}}}}}}\n  bad: {{run: {{echo: {{value: 3, fail: fatal}}}}}}\n"
        ));
        let [slow, bad] = ["slow", "bad"].map(|task| fixture.task_job(id, task));
        let attempt_ref = fixture.current(slow);
        fixture.start(attempt_ref);
        fixture.run_attempt(bad, End::Fatal);
        assert_eq!(fixture.workflow_state(id), WorkflowState::Stopping);
        // The runner never confirms the stop.
        fixture.advance(61_000);
        assert_eq!(fixture.state(slow), State::Cancelled);
        assert_eq!(fixture.workflow_state(id), WorkflowState::Stopping, "the attempt may still run");
        fixture.crash();
        assert_eq!(fixture.workflow_state(id), WorkflowState::Stopping, "its runner lists it");
        fixture.end(attempt_ref, End::Stopped);
        while !fixture.workflow_state(id).is_terminal() {
            let undo = fixture.compensations(id)[0].0;
            fixture.run_attempt(undo, End::Succeeded);
        }
        assert_eq!(rollback(&fixture, id), expected, "{undo}");
    }
}

// FEATURES: D5
#[test]
fn a_task_with_a_quarantined_result_is_compensated() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: saga
on_failure: compensate
tasks:
  a: {run: {echo: {value: secret}}, compensation: {run: {echo: {value: undo a}}}}
"#,
    );
    let job = fixture.task_job(id, "a");
    let attempt_ref = fixture.current(job);
    fixture.start(attempt_ref);
    let policy = Some(Box::new(scan(OutputVerdict::Quarantine).decision));
    fixture.end_with(attempt_ref, model::job::Outcome { policy, ..model::job::Outcome::of(End::Succeeded) });
    assert_eq!(fixture.state(job), State::Quarantined);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(rollback(&fixture, id), (RollbackState::RolledBack, 1, 1, 0));
}

// FEATURES: D5
#[test]
fn tasks_with_different_compensations_are_not_merged() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
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
fn items_keep_their_values_when_the_list_is_quarantined() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(
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
    fixture.input(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed, "its list was quarantined");
    assert_eq!(fixture.task_state(id, "each"), TaskState::Succeeded, "begun items continued");
    let done = fixture.records.jobs(model::batch::Keyspace::Done);
    assert!(done.iter().all(|job| job.result.as_ref().is_none_or(|result| !result.as_str().contains("null"))));
}

#[test]
fn a_quarantined_item_fails_its_list_with_and_without_a_crash() {
    for crash in [false, true] {
        let mut fixture = Fixture::with_runner(1);
        let id = fixture.start_workflow(
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
        let task_key = model::workflow::TaskKey::item(plan.task("each").unwrap(), 0);
        let job = fixture.records.row(id, task_key).and_then(|row| row.job).unwrap();
        let attempt = fixture.job(job).attempt;
        fixture.input(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
        if crash {
            fixture.crash();
        }
        assert_eq!(fixture.run_to_end(id), WorkflowState::Failed, "crash: {crash}");
        assert_eq!(fixture.task_state(id, "after"), TaskState::Cancelled);
    }
}

#[test]
fn a_workflows_result_loses_quarantined_values() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture
        .start_workflow("name: o\ntasks: {a: {run: {echo: {value: secret}}}}\noutputs: {said: \"${tasks.a.result}\"}");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    let job = fixture.task_job(id, "a");
    let attempt = fixture.job(job).attempt;
    fixture.input(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
    assert_eq!(fixture.result(id), json!({"said": null}));
}
