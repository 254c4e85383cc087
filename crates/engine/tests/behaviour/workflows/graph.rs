//! Order of tasks and flow of results.

use model::workflow::{TaskState, WorkflowState};
use serde_json::json;

use crate::support::Fixture;

// FEATURES: B1
#[test]
fn tasks_run_after_their_needs_and_read_their_results() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.workflow_with(
        r#"
name: sum
inputs: {start: integer}
tasks:
  a: {run: {echo: {value: "${inputs.start + 1}"}}}
  b: {run: {echo: {value: {n: "${tasks.a.result * 2}"}}}}
  c: {run: {echo: {value: "${tasks.b.result.n + tasks.a.result}"}}, needs: [b]}
outputs: {sum: "${tasks.c.result}"}
"#,
        &json!({"start": 4}),
    );
    assert_eq!(fixture.task_state(id, "a"), TaskState::Running);
    assert_eq!(fixture.task_state(id, "b"), TaskState::Waiting);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!({"sum": 15}));
    assert_eq!(fixture.shard.live_workflows(), 0, "ended workflows are not in memory");
    assert_eq!(fixture.workflow(id).totals.jobs, 3);
}

#[test]
fn a_for_each_task_respects_its_concurrency() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: each
tasks:
  a: {for_each: "${range(7)}", concurrency: 2, run: {echo: {value: "${item * item + index}"}}}
outputs: ${tasks.a.result}
"#,
    );
    assert_eq!(fixture.shard.live_jobs(), 2);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!([0, 2, 6, 12, 20, 30, 42]));
    assert_eq!(fixture.workflow(id).items.of(TaskState::Succeeded), 7);
}

#[test]
fn conditions_and_switches_choose_what_runs() {
    let yaml = r#"
name: choose
inputs: {kind: string}
tasks:
  route:
    switch:
      - {when: '${inputs.kind == "big"}', then: big}
      - {then: [small]}
  big: {run: {echo: {value: big}}}
  small: {run: {echo: {value: small}}}
  after_big: {needs: big, run: {echo: {value: x}}}
  never: {when: "${1 > 2}", run: {echo: {value: never}}}
  join: {needs: [big, small, never], run: {echo: {value: "${tasks.big.result ?? tasks.small.result}"}}}
outputs: ${tasks.join.result}
"#;
    for (kind, other) in [("big", "small"), ("small", "big")] {
        let mut fixture = Fixture::with_runner(10);
        let id = fixture.workflow_with(yaml, &json!({ "kind": kind }));
        assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
        assert_eq!(fixture.result(id), json!(kind));
        assert_eq!(fixture.task_state(id, other), TaskState::Skipped);
        assert_eq!(fixture.task_state(id, "never"), TaskState::Skipped);
        let after = if kind == "big" { TaskState::Succeeded } else { TaskState::Skipped };
        assert_eq!(fixture.task_state(id, "after_big"), after);
    }
}

// FEATURES: B1
#[test]
fn epochs_run_one_after_the_other() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: epochs
epochs: [first, second, third]
tasks:
  a: {epoch: first, run: {echo: {value: 1}}}
  b: {epoch: first, run: {echo: {value: 2, delay_ms: 5}}}
  c: {epoch: second, run: {echo: {value: 3}}}
  d: {epoch: third, run: {echo: {value: 4}}}
  e: {epoch: third, delay: 1s}
"#,
    );
    assert_eq!(fixture.shard.live_jobs(), 2);
    assert_eq!(fixture.task_state(id, "c"), TaskState::Waiting);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    let began = |task| fixture.row(id, task).unwrap().began_at;
    let ended = |task| fixture.row(id, task).unwrap().ended_at.unwrap();
    assert!(began("c") >= ended("b") && began("d") >= ended("c") && began("e") >= ended("c"));
    assert!(ended("e") >= began("e") + model::time::Millis(1000), "a delay is not over early");
}

#[test]
fn merged_tasks_run_once_and_share_the_result() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: merged
tasks:
  a: {merge: key, run: {echo: {value: 7}}}
  b: {merge: key, run: {echo: {value: 7}}}
  other: {merge: key, run: {echo: {value: 8}}}
  late: {needs: other, merge: key, run: {echo: {value: 7}}}
outputs: ["${tasks.a.result}", "${tasks.b.result}", "${tasks.other.result}", "${tasks.late.result}"]
"#,
    );
    assert_eq!(fixture.shard.live_jobs(), 2);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!([7, 7, 8, 7]));
    assert_eq!(fixture.workflow(id).totals.jobs, 2, "usage is counted once");
}

#[test]
fn a_sub_workflow_gives_its_result_to_the_task_that_started_it() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: parent
workflows:
  double:
    name: double
    inputs: {n: integer}
    tasks:
      d: {run: {echo: {value: "${inputs.n * 2}"}}}
    outputs: {doubled: "${tasks.d.result}"}
tasks:
  each: {for_each: [1, 2, 3], workflow: double, with: {n: "${item}"}}
outputs: ${tasks.each.result}
"#,
    );
    assert_eq!(fixture.shard.live_workflows(), 4);
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.result(id), json!([{"doubled": 2}, {"doubled": 4}, {"doubled": 6}]));
    assert_eq!(fixture.shard.live_workflows(), 0);
    assert_eq!(fixture.workflow(id).totals.jobs, 3);
}
