//! What large or hostile workflows must not do to the shard.

use std::fmt::Write;

use engine::Input;
use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::common::{Fixture, RUNNER, config_of, room};

#[test]
fn a_failed_epoch_ends_the_later_ones_in_small_steps_also_after_a_crash() {
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
    let id = fixture.flow(&yaml);
    while fixture.task_state(id, "bad") != TaskState::Failed {
        if !fixture.echo_step() {
            fixture.give(Input::Tick);
        }
    }
    assert!(fixture.workflow(id).tasks.of(TaskState::Waiting) > 0, "some are still to be told");
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    assert_eq!(fixture.workflow(id).tasks.of(TaskState::Cancelled), 200);
}

#[test]
fn a_shared_result_is_written_once() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.flow(&format!(
        "name: m\ntasks:\n  each: {{for_each: \"${{range(200)}}\", merge: k, run: {{echo: {{value: '{}'}}}}}}\n  \
         after: {{when: \"${{length(tasks.each.result) == 200}}\", run: {{echo: {{value: 1}}}}}}\n",
        "x".repeat(2_000)
    ));
    fixture.largest_commit = 0;
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.task_state(id, "after"), TaskState::Succeeded);
    // The list that is read has all of them; the rows have one.
    assert!(fixture.largest_commit < 500_000, "{}", fixture.largest_commit);
    assert_eq!(fixture.workflow(id).totals.jobs, 2);
}

#[test]
fn parents_do_not_keep_their_children_from_beginning() {
    let mut config = config_of(0, 1);
    config.workflows_max = 3;
    let mut fixture = Fixture::with(config);
    fixture.runner(RUNNER, room(4));
    let yaml = r#"
name: parent
workflows: {c: {name: c, tasks: {x: {run: {echo: {value: 1}}}}}}
tasks: {wait: {delay: 1s}, sub: {needs: wait, workflow: c}}
"#;
    let ids: Vec<_> = (0..3).map(|_| fixture.flow(yaml)).collect();
    for id in ids {
        assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    }
}

#[test]
fn more_sub_workflows_than_there_is_room_for_fail_and_say_so() {
    let mut config = config_of(0, 1);
    config.workflows_max = 3;
    let mut fixture = Fixture::with(config);
    fixture.runner(RUNNER, room(4));
    let id = fixture.flow(
        "name: p\nworkflows: {c: {name: c, tasks: {x: {delay: 1h}}}}\ntasks: {sub: {for_each: [1,2,3,4,5,6], workflow: c}}",
    );
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let reasons = fixture.records.rows(id).into_iter().filter_map(|(_, row)| row.reason);
    let mut codes = reasons.map(|reason| reason.code);
    assert!(codes.any(|code| code == model::reason::ReasonCode::TooManyWorkflows));
}

#[test]
fn signals_that_nobody_takes_do_not_keep_out_the_one_that_is_waited_for() {
    let mut fixture = Fixture::with_runner(1);
    let id = fixture.flow("name: q\ntasks: {a: {wait_for: go}}");
    for _ in 0..model::limits::SIGNALS_MAX {
        fixture.signal(id, "noise", &json!(1)).unwrap();
    }
    assert!(fixture.signal(id, "noise", &json!(1)).is_err());
    fixture.signal(id, "go", &json!(1)).unwrap();
    assert_eq!(fixture.flow_state(id), WorkflowState::Succeeded);
}

#[test]
fn a_list_of_results_that_nobody_could_read_ends_early_and_says_why() {
    let mut fixture = Fixture::with_runner(1);
    let value = "x".repeat(300_000);
    let id = fixture.flow(&format!(
        "name: l\ntasks:\n  each: {{for_each: \"${{range(50)}}\", concurrency: 1, run: {{echo: {{value: '{value}'}}}}}}\n  \
         after: {{when: \"${{length(tasks.each.result) > 0}}\", run: {{echo: {{value: 1}}}}}}\n"
    ));
    assert_eq!(fixture.run_to_end(id), WorkflowState::Failed);
    let reason = fixture.row(id, "each").unwrap().reason.unwrap();
    assert!(reason.message.unwrap().contains("bytes"));
    assert!(fixture.workflow(id).items.of(TaskState::Succeeded) < 10);
}
