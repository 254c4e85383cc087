//! Bounds that protect the shard from large or hostile workflows.

use std::fmt::Write;

use engine::{Answer, Input};
use model::batch::Keyspace;
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::support::{Fixture, RUNNER, config_of, room};

#[test]
fn a_failed_epoch_cancels_later_epochs_in_small_steps_even_after_a_crash() {
    let mut config = config_of(0, 1);
    config.step_bytes_max = 2_000;
    let mut fixture = Fixture::with(config);
    fixture.runner(RUNNER, room(4));
    let mut yaml = "name: e\nepochs: [a, b, c]\ntasks:\n".to_owned();
    yaml += "  bad: {epoch: a, run: {echo: {value: 1, fail: fatal}}}\n";
    for epoch in ["b", "c"] {
        for number in 0..100 {
            writeln!(yaml, "  {epoch}{number}: {{epoch: {epoch}, run: {{echo: {{value: 1}}}}}}").unwrap();
        }
    }
    let id = fixture.start_workflow(&yaml);
    while fixture.task_state(id, "bad") != TaskState::Failed {
        if !fixture.echo_step() {
            fixture.input(Input::Tick);
        }
    }
    assert!(fixture.workflow(id).tasks.of(TaskState::Waiting) > 0, "some tasks are not cancelled yet");
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.workflow(id).tasks.of(TaskState::Cancelled), 200);
}

#[test]
fn a_merged_result_is_written_once() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(&format!(
        "name: m\ntasks:\n  each: {{for_each: \"${{range(200)}}\", merge: k, run: {{echo: {{value: '{}'}}}}}}\n  \
         after: {{when: \"${{length(tasks.each.result) == 200}}\", run: {{echo: {{value: 1}}}}}}\n",
        "x".repeat(2_000)
    ));
    fixture.largest_commit = 0;
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.task_state(id, "after"), TaskState::Succeeded);
    // The list holds the result once per item; the items' rows hold it once in total.
    assert!(fixture.largest_commit < 500_000, "{}", fixture.largest_commit);
    assert_eq!(fixture.workflow(id).totals.jobs, 2);
}

#[test]
fn waiting_parents_leave_room_for_their_sub_workflows() {
    let mut config = config_of(0, 1);
    config.workflows_max = 3;
    let mut fixture = Fixture::with(config);
    fixture.runner(RUNNER, room(4));
    let yaml = r#"
name: parent
workflows: {c: {name: c, tasks: {x: {run: {echo: {value: 1}}}}}}
tasks: {wait: {delay: 1s}, sub: {needs: wait, workflow: c}}
"#;
    let ids: Vec<_> = (0..3).map(|_| fixture.start_workflow(yaml)).collect();
    for id in ids {
        assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    }
}

#[test]
fn sub_workflows_without_room_fail_with_a_reason() {
    let mut config = config_of(0, 1);
    config.workflows_max = 3;
    let mut fixture = Fixture::with(config);
    fixture.runner(RUNNER, room(4));
    let id = fixture.start_workflow(
        "name: p\nworkflows: {c: {name: c, tasks: {x: {delay: 1h}}}}\ntasks: {sub: {for_each: [1,2,3,4,5,6], workflow: c}}",
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let reasons = fixture.records.rows(id).into_iter().filter_map(|(_, row)| row.reason);
    let mut codes = reasons.map(|reason| reason.code);
    assert!(codes.any(|code| code == model::reason::ReasonCode::TooManyWorkflows));
}

#[test]
fn unconsumed_signals_do_not_block_an_awaited_one() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.start_workflow("name: q\ntasks: {a: {wait_for: go}}");
    for _ in 0..model::limits::SIGNALS_MAX {
        fixture.signal(id, "noise", &json!(1)).unwrap();
    }
    assert!(fixture.signal(id, "noise", &json!(1)).is_err());
    fixture.signal(id, "go", &json!(1)).unwrap();
    assert_eq!(fixture.workflow_state(id), WorkflowState::Succeeded);
}

#[test]
fn a_result_list_that_is_too_large_fails_its_task_early() {
    let mut fixture = Fixture::with_runner(1);
    let value = "x".repeat(300_000);
    let id = fixture.start_workflow(&format!(
        "name: l\ntasks:\n  each: {{for_each: \"${{range(50)}}\", concurrency: 1, run: {{echo: {{value: '{value}'}}}}}}\n  \
         after: {{when: \"${{length(tasks.each.result) > 0}}\", run: {{echo: {{value: 1}}}}}}\n"
    ));
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let reason = fixture.row(id, "each").unwrap().reason.unwrap();
    assert!(reason.message.unwrap().contains("bytes"));
    assert!(fixture.workflow(id).items.of(TaskState::Succeeded) < 10);
}

/// However many workflows and schedules use a definition, it is stored once, and deleted after the last of them.
#[test]
fn a_definition_is_stored_once_and_deleted_with_its_last_user() {
    let mut fixture = Fixture::with_runner(10);
    fixture.exact_counters = false;
    let yaml = "name: shared\ntasks: {a: {run: {echo: {value: 1}}}}";
    let ids = [(); 3].map(|()| fixture.start_workflow(yaml));
    assert_eq!(fixture.records.len(Keyspace::Definitions), 1);
    for id in ids {
        assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    }
    fixture.crash();
    for (left, id) in ids.into_iter().enumerate().rev() {
        let removed = fixture.request(|request| Input::RemoveWorkflow { request, workflow: id, by: None });
        assert_eq!(removed, Answer::WorkflowRemoved);
        fixture.advance(2 * fixture.config.sweep_interval.0);
        assert_eq!(fixture.records.len(Keyspace::Definitions), usize::from(left > 0));
    }
    assert_eq!(fixture.records.len(Keyspace::ByDefinition), 0);
}
