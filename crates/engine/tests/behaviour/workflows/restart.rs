//! A crash at every commit: the workflow's outcome is the same as without.

use engine::{Answer, Input, Refusal};
use model::batch::Keyspace;
use model::state::State;
use model::workflow::{TaskRecord, WorkflowState};
use serde_json::json;

use crate::support::Fixture;
use crate::support::workflows::new_workflow;

const EVERYTHING: &str = r#"
name: everything
on_failure: compensate
epochs: [one, two]
workflows:
  child:
    name: child
    inputs: {n: integer}
    tasks:
      x: {run: {echo: {value: "${inputs.n}"}}, compensation: {run: {echo: {value: "undo x ${result}"}}}}
    outputs: ${tasks.x.result}
tasks:
  a: {epoch: one, run: {echo: {value: 1}}, compensation: {run: {echo: {value: undo a}}}}
  items: {epoch: one, for_each: [1, 2, 3], concurrency: 2, run: {echo: {value: "${item}"}}, compensation: {run: {echo: {value: "undo ${item}"}}}}
  same: {epoch: one, merge: k, run: {echo: {value: 9}}}
  same_too: {epoch: one, merge: k, run: {echo: {value: 9}}}
  sleep: {epoch: one, needs: a, delay: 2s}
  route: {epoch: one, switch: [{when: "${tasks.a.result > 1}", then: never}, {then: sub}]}
  never: {epoch: one, run: {echo: {value: never}}}
  sub: {epoch: one, workflow: child, with: {n: 5}}
  last: {epoch: two, run: {echo: {value: "${tasks.items.result} ${tasks.sub.result} ${tasks.same_too.result}"}}}
  bad: {epoch: two, needs: last, run: {echo: {value: 1FAIL}}}
"#;

/// The visible outcome of all workflows.
fn outcome(fixture: &Fixture) -> Vec<String> {
    let mut seen = Vec::new();
    for record in fixture.records.workflows(Keyspace::WorkflowsDone) {
        seen.push(format!("{} {} {:?} {:?}", record.name, record.state, record.tasks, record.items));
        seen.push(format!(
            "{:?}",
            record.rollback.map(|rollback| (rollback.state, rollback.total, rollback.compensated))
        ));
        for (task_key, row) in fixture.records.rows(record.id) {
            let TaskRecord { state, result, order, compensation, merged_into, .. } = row;
            let compensated = compensation.map(|compensation| compensation.state);
            let result = result.map(|result| result.as_str().to_owned());
            seen.push(format!(
                "{task_key:?} {state} {result:?} {} {compensated:?} {}",
                order > 0,
                merged_into.is_some()
            ));
        }
        let compensated: Vec<_> =
            fixture.compensations(record.id).into_iter().map(|(_, state, value)| (state, value)).collect();
        seen.push(format!("{}", compensated.len()));
    }
    seen
}

fn run(yaml: &str, crash_at: Option<usize>, twice: bool) -> Option<(Vec<String>, usize, WorkflowState)> {
    let mut fixture = Fixture::with_runner(10);
    fixture.crash_at = crash_at.map(|at| at + fixture.commits);
    let request = fixture.next_request();
    fixture.input(Input::StartWorkflow { request, workflow: new_workflow(yaml, &json!({})) });
    let id = fixture.records.workflows(Keyspace::Workflows).first()?.id;
    if twice {
        // A second crash during the resume.
        fixture.crash_at = fixture.crash_at.map(|at| at + 1);
    }
    let state = fixture.run_to_end(id);
    fixture.settle();
    assert_eq!(fixture.records.len(Keyspace::Workflows), 0);
    assert_eq!(fixture.shard.live_jobs(), 0);
    Some((outcome(&fixture), fixture.commits, state))
}

// FEATURES: B3
#[test]
fn a_crash_at_any_commit_does_not_change_the_outcome() {
    for (fail, end) in [("", WorkflowState::Succeeded), (", fail: fatal", WorkflowState::Failed)] {
        let yaml = EVERYTHING.replace("FAIL", fail);
        let (expected, commits, state) = run(&yaml, None, false).unwrap();
        assert_eq!(state, end);
        for crash_at in 1..commits {
            for twice in [false, true] {
                let Some((seen, ..)) = run(&yaml, Some(crash_at), twice) else { continue };
                assert_eq!(seen, expected, "{fail}, crash at {crash_at}, twice: {twice}");
            }
        }
    }
}

/// Written by a newer version, and read by an older one for a while.
#[test]
fn an_unreadable_workflow_is_suspended_and_goes_on_when_it_can_be_read() {
    let mut fixture = Fixture::with_runner(10);
    let id = fixture.start_workflow(
        r#"
name: newer
workflows: {c: {name: c, tasks: {x: {run: {echo: {value: 2}}}}}}
tasks:
  a: {run: {echo: {value: 1}}}
  sub: {workflow: c}
  b: {needs: [a, sub], run: {echo: {value: 3}}}
"#,
    );
    let job = fixture.task_job(id, "a");
    fixture.records.unreadable.insert(id);
    fixture.crash();
    assert_eq!(fixture.shard.suspended_workflows(), 1);
    let refused = fixture.request(|request| Input::PauseWorkflow { request, workflow: id, by: None });
    assert_eq!(refused, Answer::Refused(Refusal::WorkflowSuspended(id)));
    // Jobs and sub-workflows go on.
    fixture.settle();
    assert_eq!(fixture.state(job), State::Succeeded);
    assert_eq!(fixture.records.workflow(id).unwrap().state, WorkflowState::Running);
    fixture.crash();
    fixture.settle();
    assert_eq!(fixture.records.workflow(id).unwrap().state, WorkflowState::Running);
    fixture.records.unreadable.clear();
    fixture.crash();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    assert_eq!(fixture.records.len(Keyspace::LateUpdates), 0);
    assert_eq!(fixture.workflow(id).totals.jobs, 3);
}
