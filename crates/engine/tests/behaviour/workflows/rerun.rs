//! Rerun of ended workflows.

use engine::{Answer, Refusal};
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::support::Fixture;

const CHAIN: &str = r#"
name: chain
inputs: {word: {type: string, default: x}}
tasks:
  a: {run: {echo: {value: a}}}
  b: {needs: a, wait_for: go, timeout: 1m}
  c: {run: {echo: {value: "${tasks.a.result} ${tasks.b.result}"}}}
  other: {run: {echo: {value: other}}}
outputs: ${tasks.c.result}
"#;

#[track_caller]
fn refused(answer: Answer) -> Refusal {
    match answer {
        Answer::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rerun_repeats_failed_tasks_and_keeps_the_others() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(CHAIN);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let (a, other) = (fixture.task_job(id, "a"), fixture.task_job(id, "other"));
    assert!(matches!(fixture.rerun(id, None), Answer::Workflow(_)));
    assert_eq!(fixture.workflow_state(id), WorkflowState::Running);
    fixture.crash();
    fixture.signal(id, "go", &json!("second")).unwrap();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!("a second"));
    assert_eq!((fixture.task_job(id, "a"), fixture.task_job(id, "other")), (a, other));
    assert_eq!(fixture.workflow(id).run, 2);
}

#[test]
fn a_named_task_and_its_dependents_rerun() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(CHAIN);
    fixture.signal(id, "go", &json!(1)).unwrap();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(refused(fixture.rerun(id, None)), Refusal::NothingToRerun);
    assert_eq!(refused(fixture.rerun(id, Some("nobody"))), Refusal::UnknownTask { name: "nobody".to_owned() });
    let before = fixture.task_job(id, "a");
    fixture.rerun(id, Some("a"));
    assert_ne!(fixture.task_job(id, "a"), before);
    fixture.signal(id, "go", &json!(2)).unwrap();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!("a 2"));
}

#[test]
fn of_two_concurrent_reruns_one_is_refused() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(CHAIN);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let (first, second) = (fixture.next_request(), fixture.next_request());
    let rerun = |request| engine::Input::RerunWorkflow { request, workflow: id, from: None, by: None };
    fixture.input_together(vec![rerun(first), rerun(second)]);
    assert!(matches!(fixture.answer(first), Some(Answer::Workflow(_))));
    let second = refused(fixture.answer(second).unwrap());
    assert_eq!(second, Refusal::WorkflowState { state: WorkflowState::Running, what: "run again" });
}

#[test]
fn compensated_tasks_rerun() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(
        r#"
name: saga
on_failure: compensate
tasks:
  a: {run: {echo: {value: a}}, compensation: {run: {echo: {value: undo a}}}}
  b: {needs: a, wait_for: go, timeout: 1m}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.compensations(id).len(), 1);
    let before = fixture.task_job(id, "a");
    fixture.rerun(id, None);
    fixture.settle();
    assert_ne!(fixture.task_job(id, "a"), before);
    assert_eq!(fixture.workflow(id).rollback, None);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.compensations(id).len(), 2, "each run is compensated once");
}

#[test]
fn a_rerun_task_reruns_its_items() {
    let mut fixture = Fixture::with_runner(2);
    let yaml = "name: e\ntasks: {all: {for_each: [1, 2], run: {echo: {value: \"${item}\"}}}, b: {needs: all, run: {echo: {value: 1}}}}";
    let id = fixture.start_workflow(yaml);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    fixture.rerun(id, Some("all"));
    fixture.crash();
    assert_eq!(fixture.workflow(id).items.live(), 2);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.workflow(id).items.of(TaskState::Succeeded), 2);
    assert_eq!(fixture.workflow(id).totals.jobs, 6);
}
