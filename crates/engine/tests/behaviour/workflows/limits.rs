//! Limits of a full shard, and of the size of commits.

use std::fmt::Write;

use engine::Answer;
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::support::workflows::new_workflow;
use crate::support::{Fixture, config_of};

#[test]
fn tasks_wait_for_room_in_the_shard_and_none_is_lost() {
    let mut config = config_of(0, 1);
    config.live_jobs_max = 3;
    let mut fixture = Fixture::with(config);
    fixture.runner(crate::support::RUNNER, crate::support::room(10));
    let id = fixture.start_workflow("name: many\ntasks: {a: {for_each: \"${range(10)}\", run: {echo: {value: 1}}}}");
    assert_eq!(fixture.shard.live_jobs(), 3);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.workflow(id).items.of(TaskState::Succeeded), 10);
}

#[test]
fn a_full_shard_starts_no_workflow() {
    let mut config = config_of(0, 1);
    config.workflows_max = 1;
    let mut fixture = Fixture::with(config);
    fixture.start_workflow("name: a\ntasks: {a: {delay: 1h}}");
    let workflow = new_workflow("name: a\ntasks: {a: {delay: 1h}}", &json!({}));
    let answer = fixture.request(|request| engine::Input::StartWorkflow { request, workflow });
    assert!(matches!(answer, Answer::Refused(engine::Refusal::Full { .. })));
}

#[test]
fn a_large_fan_out_begins_and_is_cancelled_in_steps_of_bounded_size() {
    let mut config = config_of(0, 1);
    config.step_bytes_max = 30_000;
    let mut fixture = Fixture::with(config);
    fixture.runner(crate::support::RUNNER, crate::support::room(100));
    let mut yaml = "name: wide\ntasks:\n  first: {run: {echo: {value: 1}}}\n".to_owned();
    for n in 0..1_000 {
        writeln!(yaml, "  t{n}: {{needs: first, run: {{echo: {{value: {n}}}}}}}").unwrap();
    }
    let id = fixture.start_workflow(&yaml);
    let definition = yaml.len();
    fixture.largest_commit = 0;
    for _ in 0..100 {
        fixture.echo_step();
    }
    fixture.cancel_workflow(id, false);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Cancelled);
    assert!(fixture.largest_commit < 60_000, "{} of {definition}", fixture.largest_commit);
    assert_eq!(fixture.workflow(id).tasks.total(), 1_001);
}

#[test]
fn a_failure_cancels_very_many_dependents_in_steps() {
    let mut config = config_of(0, 1);
    config.step_bytes_max = 30_000;
    let mut fixture = Fixture::with(config);
    fixture.runner(crate::support::RUNNER, crate::support::room(100));
    let mut yaml = "name: wide\ntasks:\n  first: {run: {echo: {value: 1, fail: fatal}}}\n".to_owned();
    for n in 0..1_000 {
        writeln!(yaml, "  t{n}: {{needs: first, run: {{echo: {{value: {n}}}}}}}").unwrap();
    }
    let id = fixture.start_workflow(&yaml);
    fixture.largest_commit = 0;
    fixture.echo_step();
    fixture.echo_step();
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.workflow(id).tasks.of(TaskState::Cancelled), 1_000);
    assert!(fixture.largest_commit < 60_000, "{}", fixture.largest_commit);
}
