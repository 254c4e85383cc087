//! Changes to a result after its task has ended.

use engine::Input;
use model::batch::Keyspace;
use model::id::JobId;
use model::job::{End, Redacted};
use model::json::Json;
use model::reason::ReasonCode;
use model::state::State;
use model::verdict::OutputVerdict;
use model::workflow::{NoteKind, RollbackState, TaskState, WorkflowState};
use serde_json::json;

use crate::support::{Fixture, scan};

fn scanned(fixture: &mut Fixture, job: JobId, verdict: OutputVerdict) {
    let attempt = fixture.job(job).attempt;
    fixture.input(Input::Scanned { job, attempt, scan: scan(verdict) });
}

const CHAIN: &str = r#"
name: chain
tasks:
  a: {run: {echo: {value: secret}}}
  begun: {run: {echo: {value: "${tasks.a.result}"}}}
  listener: {wait_for: go}
  not_begun: {needs: [a, listener], run: {echo: {value: 1}}}
"#;

#[test]
fn a_late_quarantine_does_not_stop_begun_tasks_and_is_in_the_history() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(CHAIN);
    fixture.settle();
    assert_eq!(fixture.task_state(id, "begun"), TaskState::Succeeded);
    let job = fixture.task_job(id, "a");
    scanned(&mut fixture, job, OutputVerdict::Quarantine);
    fixture.settle();
    assert_eq!(fixture.task_state(id, "a"), TaskState::Quarantined);
    assert_eq!(fixture.row(id, "a").unwrap().result, None, "the task's row loses the result");
    assert_eq!(fixture.task_state(id, "begun"), TaskState::Succeeded);
    assert_eq!(fixture.task_state(id, "not_begun"), TaskState::Cancelled);
    assert!(fixture.workflow(id).notes.iter().any(|note| note.kind == NoteKind::QuarantinedLate));
    fixture.signal(id, "go", &json!(1)).unwrap();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.workflow(id).reason.unwrap().code, ReasonCode::OutputQuarantined);
}

#[test]
fn a_quarantine_after_the_workflow_ended_is_only_noted() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow("name: one\ntasks: {a: {run: {echo: {value: 1}}}}\noutputs: ${tasks.a.result}");
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    let job = fixture.task_job(id, "a");
    scanned(&mut fixture, job, OutputVerdict::Quarantine);
    let record = fixture.workflow(id);
    assert_eq!(record.state, WorkflowState::Succeeded);
    assert!(record.notes.iter().any(|note| note.kind == NoteKind::QuarantinedLate));
    assert_eq!(fixture.task_state(id, "a"), TaskState::Quarantined);
    assert_eq!(fixture.shard.live_workflows(), 0);
    let job = fixture.task_job(id, "a");
    fixture.request(|request| Input::Release { request, job, by: None });
    assert_eq!(fixture.task_state(id, "a"), TaskState::Succeeded);
}

#[test]
fn a_late_redaction_reaches_the_workflow() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(CHAIN);
    fixture.settle();
    let job = fixture.task_job(id, "a");
    let attempt = fixture.job(job).attempt;
    let mut redaction = scan(OutputVerdict::Redact);
    let result = Some(model::json::Json::of(&"***"));
    redaction.redacted =
        Some(model::job::Redacted { result, spilled: None, artifacts: Vec::new(), log: None, keep_original: false });
    fixture.input(Input::Scanned { job, attempt, scan: redaction });
    assert_eq!(fixture.state(job), State::Succeeded);
    assert_eq!(fixture.row(id, "a").unwrap().result.unwrap().as_str(), "\"***\"");
}

// FEATURES: D5
#[test]
fn a_failed_compensation_that_is_retried_completes_the_rollback() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: saga
on_failure: compensate
tasks:
  a: {run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo, fail: fatal}}}}
  b: {needs: a, run: {echo: {value: 1, fail: fatal}}}
"#,
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.workflow(id).rollback.unwrap().state, RollbackState::PartiallyRolledBack);
    let (job, state, _) = fixture.compensations(id)[0].clone();
    assert_eq!(state, State::Failed);
    fixture.retry(job).unwrap();
    fixture.run_attempt(job, model::job::End::Succeeded);
    let rollback = fixture.workflow(id).rollback.unwrap();
    assert_eq!(rollback.state, RollbackState::RolledBack);
    assert_eq!((rollback.compensated, rollback.failed), (1, 0));
    assert_eq!(fixture.shard.live_workflows(), 0);
}

#[test]
fn a_quarantine_reaches_all_merged_tasks() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: shared
tasks:
  a: {merge: k, run: {echo: {value: 1}}}
  b: {merge: k, run: {echo: {value: 1}}}
  c: {for_each: [1], merge: k, run: {echo: {value: 1}}}
  listener: {wait_for: go}
  late: {needs: [b, listener], run: {echo: {value: 1}}}
  reader: {needs: listener, run: {echo: {value: "${tasks.a.result} ${tasks.b.result} ${tasks.c.result}"}}}
"#,
    );
    fixture.settle();
    let job = fixture.task_job(id, "a");
    scanned(&mut fixture, job, OutputVerdict::Quarantine);
    fixture.settle();
    for task in ["a", "b", "c"] {
        assert_eq!(fixture.task_state(id, task), TaskState::Quarantined, "{task}");
        assert_eq!(fixture.row(id, task).unwrap().result, None, "{task}");
    }
    assert_eq!(fixture.task_state(id, "late"), TaskState::Cancelled);
}

/// The simulation found it: the leader tolerates its failure, the task that merges into it later does not.
#[test]
fn a_task_that_merges_into_a_quarantined_one_fails() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: shared
tasks:
  a: {merge: k, on_failure: continue, run: {echo: {value: 1}}}
  listener: {wait_for: go}
  b: {needs: listener, merge: k, run: {echo: {value: 1}}}
"#,
    );
    fixture.settle();
    let job = fixture.task_job(id, "a");
    scanned(&mut fixture, job, OutputVerdict::Quarantine);
    fixture.signal(id, "go", &json!(1)).unwrap();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.task_state(id, "b"), TaskState::Quarantined);
}

/// The simulation found it: the leader succeeds while the workflow stops, and a scan withholds its result.
#[test]
fn the_release_of_a_leader_leaves_cancelled_tasks_alone() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        "name: shared\ntasks:\n  a: {merge: k, run: {echo: {value: 1}}}\n  b: {merge: k, run: {echo: {value: 1}}}\n",
    );
    let job = fixture.task_job(id, "a");
    let attempt_ref = fixture.current(job);
    fixture.start(attempt_ref);
    fixture.request(|request| Input::CancelWorkflow { request, workflow: id, by: None, compensate: false });
    assert_eq!(fixture.task_state(id, "b"), TaskState::Cancelled);
    fixture.end(attempt_ref, End::Succeeded);
    assert_eq!(fixture.task_state(id, "a"), TaskState::Succeeded);
    scanned(&mut fixture, job, OutputVerdict::Quarantine);
    assert_eq!(fixture.task_state(id, "a"), TaskState::Quarantined);
    fixture.request(|request| Input::Release { request, job, by: None });
    assert_eq!(fixture.task_state(id, "a"), TaskState::Succeeded);
    assert_eq!(fixture.task_state(id, "b"), TaskState::Cancelled);
}

#[test]
fn a_released_result_lets_the_workflow_succeed_with_and_without_a_crash() {
    for crash in [false, true] {
        let mut fixture = Fixture::with_runner(10);
        let id = fixture.start_workflow("name: r\ntasks: {a: {run: {echo: {value: 1}}}, listener: {wait_for: go}}");
        fixture.settle();
        let job = fixture.task_job(id, "a");
        scanned(&mut fixture, job, OutputVerdict::Quarantine);
        fixture.request(|request| Input::Release { request, job, by: None });
        if crash {
            fixture.crash();
        }
        fixture.signal(id, "go", &json!(1)).unwrap();
        assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded, "crash: {crash}");
    }
}

#[test]
fn a_late_update_reaches_an_ended_workflow_despite_any_crash() {
    // The update arrives with the second commit.
    for crash_at in 2..5 {
        let mut fixture = Fixture::with_runner(10);
        let id = fixture.start_workflow("name: one\ntasks: {a: {run: {echo: {value: 1}}}}\noutputs: ${tasks.a.result}");
        assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
        let job = fixture.task_job(id, "a");
        fixture.crash_at = Some(fixture.commits + crash_at);
        scanned(&mut fixture, job, OutputVerdict::Quarantine);
        fixture.settle();
        assert_eq!(fixture.state(job), State::Quarantined);
        assert_eq!(fixture.task_state(id, "a"), TaskState::Quarantined, "crash at {crash_at}");
        assert_eq!(fixture.records.len(model::batch::Keyspace::LateUpdates), 0);
    }
}

/// A fetch reads all tasks of the workflow: their number must not grow with that of the updates.
#[test]
fn many_late_redactions_take_few_fetches() {
    const ITEMS: usize = 300;
    let mut fixture = Fixture::with_runner(ITEMS as u32);
    let items = (0..ITEMS).map(|item| item.to_string()).collect::<Vec<_>>().join(", ");
    let id = fixture.start_workflow(&format!(
        "name: list\ntasks: {{a: {{for_each: [{items}], run: {{echo: {{value: \"${{item}}\"}}}}}}}}\noutputs: ${{tasks.a.result}}"
    ));
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    let jobs: Vec<JobId> = fixture.records.jobs(Keyspace::Done).into_iter().map(|job| job.id).collect();
    assert_eq!(jobs.len(), ITEMS);
    fixture.workflow_fetches = 0;
    for job in jobs {
        let mut redaction = scan(OutputVerdict::Redact);
        let result = Some(Json::of(&"*"));
        redaction.redacted =
            Some(Redacted { result, spilled: None, artifacts: vec![], log: None, keep_original: false });
        let attempt = fixture.job(job).attempt;
        fixture.input(Input::Scanned { job, attempt, scan: redaction });
    }
    fixture.advance(10_000);
    assert!(fixture.workflow_fetches < 20, "{} fetches", fixture.workflow_fetches);
    assert_eq!(fixture.records.len(Keyspace::LateUpdates), 0);
    let redacted: Vec<String> = serde_json::from_slice(fixture.workflow(id).result.unwrap().as_bytes()).unwrap();
    assert_eq!(redacted, vec!["*"; ITEMS]);
    assert_eq!(fixture.shard.live_workflows(), 0);
}
