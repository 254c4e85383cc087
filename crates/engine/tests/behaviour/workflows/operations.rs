//! Operations on workflows: cancel, pause, remove; progress.

use engine::{Answer, Input, Refusal};
use model::batch::Keyspace;
use model::reason::ReasonCode;
use model::state::State;
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::support::workflows::new_workflow;
use crate::support::{DAY, Fixture};

const MIXED: &str = r#"
name: mixed
tasks:
  running: {run: {echo: {value: 1}}}
  sleeping: {delay: 1h}
  listening: {wait_for: x}
  waiting: {needs: running, run: {echo: {value: 2}}}
  items: {for_each: "${range(5)}", concurrency: 2, run: {echo: {value: "${item}"}}}
"#;

#[test]
fn cancelling_stops_live_tasks_and_begins_no_others() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(MIXED);
    let job = fixture.task_job(id, "running");
    fixture.start(fixture.current(job));
    assert!(matches!(fixture.cancel_workflow(id, false), Answer::Workflow(_)));
    assert_eq!(fixture.workflow_state(id), WorkflowState::Stopping);
    assert_eq!(fixture.state(job), State::Cancelling);
    fixture.crash();
    assert!(matches!(fixture.cancel_workflow(id, false), Answer::Workflow(_)), "cancelling is idempotent");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    for task in ["running", "sleeping", "listening", "waiting", "items"] {
        assert_eq!(fixture.task_state(id, task), TaskState::Cancelled, "{task}");
    }
    assert_eq!(fixture.workflow(id).items.of(TaskState::Cancelled), 5);
    assert!(matches!(fixture.cancel_workflow(id, false), Answer::Workflow(_)), "idempotent after the end");
    assert_eq!(fixture.shard.live_jobs(), 0);
}

#[test]
fn a_workflow_that_ended_otherwise_cannot_be_cancelled() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow("name: a\ntasks: {a: {run: {echo: {value: 1}}}}");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    let answer = fixture.cancel_workflow(id, false);
    let refused = Refusal::WorkflowState { state: WorkflowState::Succeeded, what: "cancelled" };
    assert_eq!(answer, Answer::Refused(refused));
}

#[test]
fn a_paused_workflow_begins_nothing_until_it_is_resumed() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture
        .start_workflow("name: p\ntasks: {a: {run: {echo: {value: 1}}}, b: {needs: a, run: {echo: {value: 2}}}}");
    let pause = fixture.request(|request| Input::PauseWorkflow { request, workflow: id, by: None });
    assert!(matches!(pause, Answer::Workflow(_)));
    fixture.settle();
    fixture.crash();
    fixture.settle();
    assert_eq!(fixture.task_state(id, "a"), TaskState::Succeeded, "begun tasks continue");
    assert_eq!(fixture.task_state(id, "b"), TaskState::Waiting);
    assert_eq!(fixture.workflow_state(id), WorkflowState::Paused);
    fixture.request(|request| Input::ResumeWorkflow { request, workflow: id, by: None });
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    let refused = fixture.request(|request| Input::PauseWorkflow { request, workflow: id, by: None });
    assert!(matches!(refused, Answer::Refused(Refusal::WorkflowState { .. })));
}

#[test]
fn pausing_a_workflow_pauses_its_sub_workflows() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: p
workflows:
  c: {name: c, tasks: {x: {run: {echo: {value: 1}}}, y: {needs: x, run: {echo: {value: 2}}}}}
tasks: {sub: {workflow: c}}
"#,
    );
    fixture.request(|request| Input::PauseWorkflow { request, workflow: id, by: None });
    fixture.settle();
    let child = fixture.row(id, "sub").unwrap().child.unwrap();
    assert_eq!(fixture.task_state(child, "y"), TaskState::Waiting);
    fixture.request(|request| Input::ResumeWorkflow { request, workflow: id, by: None });
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
}

#[test]
fn cancelling_its_queue_cancels_a_workflow() {
    let mut fixture = Fixture::with_runner(10);
    let queue = fixture.create_queue(|_| {}).id;
    let mut new = new_workflow(MIXED, &json!({}));
    new.queue = Some(model::queue::QueueRef::Id(queue));
    let id = fixture.started(new);
    let answer = fixture.remove_queue(queue);
    assert!(matches!(answer, Answer::Refused(Refusal::QueueNotEmpty(_))), "{answer:?}");
    fixture.cancel_queue(queue);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    assert_eq!(fixture.workflow(id).reason.unwrap().code, ReasonCode::QueueCancelled);
}

#[test]
fn compensations_run_although_the_queue_was_cancelled() {
    let mut fixture = Fixture::with_runner(10);
    let queue = fixture.create_queue(|_| {}).id;
    let yaml = r#"
name: saga
tasks:
  a: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo a}}}}
  b: {needs: a, delay: 1h}
  c: {run: {echo: {value: 1}}}
"#;
    let mut new = new_workflow(yaml, &json!({}));
    new.queue = Some(model::queue::QueueRef::Id(queue));
    let id = fixture.started(new);
    let (a, c) = (fixture.task_job(id, "a"), fixture.task_job(id, "c"));
    fixture.run_attempt(a, model::job::End::Succeeded);
    fixture.start(fixture.current(c));
    fixture.cancel_workflow(id, true);
    fixture.cancel_queue(queue);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    assert_eq!(fixture.workflow(id).rollback.unwrap().compensated, 1);
}

#[test]
fn a_queue_does_not_expire_while_a_workflow_sleeps() {
    let mut fixture = Fixture::with_runner(1);
    let queue = fixture.create_queue(|_| {}).id;
    let mut new = new_workflow("name: s\ntasks: {a: {delay: 2h}, b: {needs: a, run: {echo: {value: 1}}}}", &json!({}));
    new.queue = Some(model::queue::QueueRef::Id(queue));
    let id = fixture.started(new);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.job(fixture.task_job(id, "b")).queue, queue);
    fixture.advance(DAY / 24);
    assert_eq!(fixture.records.queue(queue), None, "the queue expires after the workflow");
}

#[test]
fn removing_a_finished_workflow_deletes_all_its_records() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow("name: r\ntasks: {a: {for_each: \"${range(2500)}\", delay: 1s}}");
    let remove = |request| Input::RemoveWorkflow { request, workflow: id, by: None };
    assert!(matches!(fixture.request(remove), Answer::Refused(Refusal::WorkflowState { .. })));
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.request(remove), Answer::WorkflowRemoved);
    for keyspace in [Keyspace::Workflows, Keyspace::WorkflowsDone, Keyspace::WorkflowSpecs, Keyspace::Tasks] {
        assert_eq!(fixture.records.len(keyspace), 0, "{keyspace:?}");
    }
    assert_eq!(fixture.request(remove), Answer::Refused(Refusal::UnknownWorkflow(id)));
}

#[test]
fn a_removal_continues_after_a_crash() {
    let mut fixture = Fixture::with_runner(10);
    fixture.config.cancel_chunk = 10;
    fixture.crash();
    let id = fixture.start_workflow("name: r\ntasks: {a: {for_each: \"${range(50)}\", delay: 1s}}");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    fixture.crash_at = Some(fixture.commits + 4);
    let request = fixture.next_request();
    fixture.input(Input::RemoveWorkflow { request, workflow: id, by: None });
    assert_eq!(fixture.answer(request), None, "the crash came before the answer");
    let rerun = fixture.rerun(id, Some("a"));
    assert_eq!(rerun, Answer::Refused(Refusal::UnknownWorkflow(id)));
    fixture.settle();
    for keyspace in [Keyspace::Workflows, Keyspace::WorkflowsDone, Keyspace::WorkflowSpecs, Keyspace::Tasks] {
        assert_eq!(fixture.records.len(keyspace), 0, "{keyspace:?}");
    }
}

#[test]
fn finished_workflows_are_removed_after_their_retention() {
    let mut fixture = Fixture::with_runner(10);
    fixture.exact_counters = false;
    let old = fixture.start_workflow("name: old\ntasks: {a: {run: {echo: {value: 1}}}}");
    assert_eq!(fixture.run_to_end(old), WorkflowState::Succeeded);
    fixture.advance(5 * DAY);
    let young = fixture.start_workflow("name: young\ntasks: {a: {run: {echo: {value: 1}}}}");
    assert_eq!(fixture.run_to_end(young), WorkflowState::Succeeded);
    fixture.advance(3 * DAY);
    assert_eq!(fixture.records.workflow(old), None);
    assert!(fixture.records.workflow(young).is_some());
    assert_eq!(fixture.records.len(Keyspace::Tasks), 1);
}

#[test]
fn a_running_task_reports_progress() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(MIXED);
    let job = fixture.task_job(id, "running");
    let progress = |request| Input::Progress { request, job, percent: 40, message: Some("compiling".to_owned()) };
    assert_eq!(fixture.request(progress), Answer::Refused(Refusal::NoProgress), "it has not started");
    fixture.start(fixture.current(job));
    assert_eq!(fixture.request(progress), Answer::Progressed);
    let said = fixture.row(id, "running").unwrap().progress.unwrap();
    assert_eq!((said.percent, said.message.as_deref()), (40, Some("compiling")));
    fixture.end(fixture.current(job), model::job::End::Succeeded);
    assert_eq!(fixture.request(progress), Answer::Refused(Refusal::NoProgress), "a late report is refused");
    assert_eq!(fixture.task_state(id, "running"), TaskState::Succeeded);
}

#[test]
fn a_job_of_a_workflow_is_retried_by_its_workflow_only() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow("name: f\ntasks: {a: {run: {echo: {value: 1, fail: fatal}}}}");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.retry(fixture.task_job(id, "a")), Err(Refusal::JobOfWorkflow(id)));
}

#[test]
fn the_same_key_starts_one_workflow() {
    let mut fixture = Fixture::with_runner(10);
    let key = model::spec::KeyHash::of("default", "key");
    let digest = model::spec::Digest::of(b"body");
    let start = |fixture: &mut Fixture, digest| {
        let mut workflow = new_workflow("name: k\ntasks: {a: {delay: 1h}}", &json!({}));
        workflow.key = Some((key, digest));
        fixture.request(|request| Input::StartWorkflow { request, workflow })
    };
    let Answer::Workflow(record) = start(&mut fixture, digest) else { panic!("the workflow was not started") };
    fixture.crash();
    assert_eq!(start(&mut fixture, digest), Answer::WorkflowExists(record.id));
    let other = start(&mut fixture, model::spec::Digest::of(b"other"));
    assert_eq!(other, Answer::Refused(Refusal::KeyConflict));
    assert_eq!(fixture.shard.live_workflows(), 1);
}
