//! Approval tasks.

use engine::{Answer, ApprovalDecision, Input, Refusal};
use model::id::JobId;
use model::state::State;
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::support::Fixture;

const DEPLOY: &str = r#"
name: deploy
tasks:
  build: {run: {echo: {value: v7}}}
  sure: {approval: "deploy ${tasks.build.result}?", timeout: 1d}
  deploy: {needs: sure, run: {echo: {value: "by ${tasks.sure.result.approved_by}"}}}
outputs: ${tasks.deploy.result}
"#;

fn decide(fixture: &mut Fixture, job: JobId, approved: bool) -> Answer {
    let decision = ApprovalDecision { by: Some("anna".into()), approved, comment: None, digest: None, rule: None };
    fixture.request(|request| Input::Approve { request, job, decision: Box::new(decision) })
}

// FEATURES: D2
#[test]
fn a_task_waits_for_an_approval_and_returns_who_gave_it() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(DEPLOY);
    fixture.settle();
    let job = fixture.task_job(id, "sure");
    assert_eq!(fixture.state(job), State::ApprovalRequired);
    assert_eq!(fixture.job(job).last_decision().unwrap().message.as_deref(), Some("deploy v7?"));
    fixture.crash();
    assert!(matches!(decide(&mut fixture, job, true), Answer::Job(_)));
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!("by anna"));
}

// FEATURES: D2
#[test]
fn a_rejection_fails_the_task_and_cancels_its_dependents() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(DEPLOY);
    fixture.settle();
    let job = fixture.task_job(id, "sure");
    decide(&mut fixture, job, false);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.task_state(id, "deploy"), TaskState::Cancelled);
}

#[test]
fn a_cancelled_task_cannot_be_approved() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(DEPLOY);
    fixture.settle();
    let job = fixture.task_job(id, "sure");
    fixture.cancel_workflow(id, false);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    let answer = decide(&mut fixture, job, true);
    assert!(matches!(answer, Answer::Refused(Refusal::WrongState { state: State::Cancelled, .. })), "{answer:?}");
    assert_eq!(fixture.workflow_state(id), WorkflowState::Cancelled);
}

#[test]
fn an_approval_that_does_not_arrive_fails_the_task_at_its_timeout() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow(DEPLOY);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let job = fixture.task_job(id, "sure");
    assert_eq!(fixture.state(job), State::TimedOut);
}
