//! Tasks that wait for a person.

use engine::{Answer, Input, Refusal, Word};
use model::id::JobId;
use model::state::State;
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::common::Fixture;

const DEPLOY: &str = r#"
name: deploy
tasks:
  build: {run: {echo: {value: v7}}}
  sure: {approval: "deploy ${tasks.build.result}?", timeout: 1d}
  deploy: {needs: sure, run: {echo: {value: "by ${tasks.sure.result.approved_by}"}}}
outputs: ${tasks.deploy.result}
"#;

fn say(fixture: &mut Fixture, job: JobId, approved: bool) -> Answer {
    let word = Word { by: Some("anna".into()), approved, comment: None, digest: None, rule: None };
    fixture.ask(|request| Input::Approve { request, job, word: Box::new(word) })
}

// FEATURES: D2
#[test]
fn a_task_waits_for_a_person_and_hands_on_who_it_was() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(DEPLOY);
    fixture.settle();
    let job = fixture.task_job(id, "sure");
    assert_eq!(fixture.state(job), State::ApprovalRequired);
    assert_eq!(fixture.job(job).last_decision().unwrap().message.as_deref(), Some("deploy v7?"));
    fixture.crash();
    assert!(matches!(say(&mut fixture, job, true), Answer::Job(_)));
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!("by anna"));
}

// FEATURES: D2
#[test]
fn a_no_fails_the_task_and_what_depends_on_it() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(DEPLOY);
    fixture.settle();
    let job = fixture.task_job(id, "sure");
    say(&mut fixture, job, false);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.task_state(id, "deploy"), TaskState::Cancelled);
}

#[test]
fn a_cancelled_step_can_not_be_approved() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(DEPLOY);
    fixture.settle();
    let job = fixture.task_job(id, "sure");
    fixture.cancel_flow(id, false);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    let answer = say(&mut fixture, job, true);
    assert!(matches!(answer, Answer::Refused(Refusal::WrongState { state: State::Cancelled, .. })), "{answer:?}");
    assert_eq!(fixture.flow_state(id), WorkflowState::Cancelled);
}

#[test]
fn nobody_says_anything_in_time() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow(DEPLOY);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let job = fixture.task_job(id, "sure");
    assert_eq!(fixture.state(job), State::TimedOut);
}
