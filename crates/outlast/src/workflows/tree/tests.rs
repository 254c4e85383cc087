//! Rendered trees.

use std::time::Duration;

use api::WorkflowView;
use proptest::prelude::*;
use serde_json::json;

use super::example::{items, task, task_with, workflow, workflow_of};
use super::{Children, DrawOptions, WorkflowTree, draw, width_of};
use crate::paint::Paint;

fn options(width: usize, height: Option<usize>) -> DrawOptions {
    DrawOptions { paint: Paint::NONE, width, height, frame: None }
}

fn drawn(view: &WorkflowView, width: usize, height: Option<usize>) -> String {
    draw(&WorkflowTree::new(view, &Children::new(), Duration::ZERO), options(width, height)).join("\n")
}

#[test]
fn a_running_workflow_has_a_line_for_each_task() {
    insta::assert_snapshot!(drawn(&workflow("running"), 80, None), @"
    build-and-test  running  12s  1/3 tasks  wf_0000000000001
    ├─ ✓ fetch    succeeded   1.2s
    ├─ ● build    running      11s
    └─ ○ publish  waiting
    ");
}

#[test]
fn a_failure_is_shown_with_its_reason_and_consequences() {
    let mut view = workflow("failed");
    view.reason = serde_json::from_value(json!({"code": "task_failed", "message": "build"})).unwrap();
    insta::assert_snapshot!(drawn(&view, 80, None), @"
    build-and-test  failed  12s  3/3 tasks  wf_0000000000001
    task failed: build
    ├─ ✓ fetch    succeeded   1.2s
    ├─ ✗ build    failed     900ms  job failed: it exited with 1
    └─ ⊘ publish  cancelled         upstream failed
    ");
}

#[test]
fn every_state_has_its_symbol_and_label() {
    let progress = json!({"percent": 45, "message": "linking", "at": "2026-01-01T00:00:00.000Z"});
    let tasks = vec![
        task("waits", "waiting", None),
        task_with("queued", "running", Some(10), json!({"job_state": "pending"})),
        task_with("runs", "running", Some(2000), json!({"job_state": "running", "progress": progress})),
        task_with("sleeps", "sleeping", Some(2000), json!({"kind": "delay", "due": "2026-01-01T00:10:00.000Z"})),
        task_with("listens", "listening", Some(2000), json!({"kind": "wait_for"})),
        task_with("merged", "merged", Some(2000), json!({"merged_into": {"task": "runs", "item": null}})),
        task("succeeded", "succeeded", Some(65_000)),
        task_with(
            "failed",
            "failed",
            Some(30),
            json!({"reason": {"code": "retries_exhausted", "message": "it exited with 7\nand more"}}),
        ),
        task_with("skipped", "skipped", Some(0), json!({"reason": {"code": "condition_false", "message": null}})),
        task_with(
            "cancelled",
            "cancelled",
            Some(500),
            json!({"reason": {"code": "workflow_stopped", "message": null}}),
        ),
        task_with("held", "quarantined", Some(500), json!({"reason": {"code": "output_quarantined", "message": null}})),
        task_with("chooses", "succeeded", Some(1), json!({"kind": "switch", "chosen": ["runs", "failed"]})),
    ];
    insta::assert_snapshot!(drawn(&workflow_of("running", tasks, json!({})), 90, None), @"
    build-and-test  running  12s  6/12 tasks  wf_0000000000001
    ├─ ○ waits      waiting
    ├─ ○ queued     queued        10ms
    ├─ ● runs       running       2.0s  45% linking
    ├─ ◔ sleeps     sleeping      2.0s  until 2026-01-01T00:10:00.000Z
    ├─ ◔ listens    listening     2.0s  waiting for a signal
    ├─ ◔ merged     merged        2.0s  merged with runs
    ├─ ✓ succeeded  succeeded    1m05s
    ├─ ✗ failed     failed        30ms  retries exhausted: it exited with 7
    ├─ - skipped    skipped             condition false
    ├─ ⊘ cancelled  cancelled    500ms  workflow stopped
    ├─ ✗ held       quarantined  500ms  output quarantined
    └─ ✓ chooses    succeeded      1ms  → runs, failed
    ");
}

#[test]
fn a_pending_approval_shows_the_command_to_approve_it() {
    let waits = json!({"kind": "approval", "job": "job_0000000000007", "job_state": "approval_required"});
    let tasks = vec![
        task("build", "succeeded", Some(1200)),
        task_with("approve", "running", Some(90_000), waits),
        task("deploy", "waiting", None),
    ];
    insta::assert_snapshot!(drawn(&workflow_of("running", tasks, json!({})), 100, None), @"
    build-and-test  running  12s  1/3 tasks  wf_0000000000001
    ├─ ✓ build    succeeded   1.2s
    ├─ ? approve  approval   1m30s  outlast approvals approve job_0000000000007 --reason …
    └─ ○ deploy   waiting
    ");
}

#[test]
fn a_list_of_items_is_one_line_with_a_bar() {
    let states = [("succeeded", 35), ("failed", 2), ("running", 4)];
    let tasks = vec![task_with(
        "build",
        "running",
        Some(12_000),
        json!({"items_total": 100, "items": items("build", &states)}),
    )];
    insta::assert_snapshot!(drawn(&workflow_of("running", tasks.clone(), json!({})), 120, None), @"
    build-and-test  running  12s  0/1 tasks  wf_0000000000001
    └─ ● build    running    12s  ███████░░░░░░░░░░░░░ 37/100  4 running, 2 failed
       ├─ ✗ [35]  failed   500ms
       └─ ✗ [36]  failed   500ms
    ");
    insta::assert_snapshot!(drawn(&workflow_of("running", tasks.clone(), json!({})), 70, None), @"
    build-and-test  running  12s  0/1 tasks  wf_0000000000001
    └─ ● build    running    12s  ███░░░░░░░ 37/100  4 running, 2 failed
       ├─ ✗ [35]  failed   500ms
       └─ ✗ [36]  failed   500ms
    ");
    insta::assert_snapshot!(drawn(&workflow_of("running", tasks, json!({})), 40, None), @"
    build-and-test  running  12s  0/1 tasks…
    └─ ● build      12s  37/100  4 running,…
       ├─ ✗ [35]  500ms
       └─ ✗ [36]  500ms
    ");
}

#[test]
fn hidden_items_are_counted() {
    let shown = items("build", &[("succeeded", 100)]);
    let build = task_with(
        "build",
        "running",
        Some(12_000),
        json!({"items_total": 5000, "items": shown, "items_left_out": 1200}),
    );
    let counts = json!({"items": {"succeeded": 1290, "running": 10, "waiting": 3700}});
    insta::assert_snapshot!(drawn(&workflow_of("running", vec![build], counts), 80, None), @"
    build-and-test  running  12s  0/1 tasks  wf_0000000000001
    └─ ● build  running    12s  ██░░░░░░░░ 1290/5000  10 running
    ");
}

#[test]
fn a_rollback_is_shown_with_each_compensated_step() {
    let compensation =
        |state: &str| json!({"compensation": {"state": state, "job": null, "at": "2026-01-01T00:00:05.000Z"}});
    let tasks = vec![
        task_with("reserve", "succeeded", Some(100), compensation("done")),
        task_with("charge", "succeeded", Some(200), compensation("running")),
        task_with("mail", "succeeded", Some(300), compensation("failed")),
        task_with("ship", "failed", Some(50), json!({"reason": {"code": "fatal", "message": "no stock"}})),
    ];
    let began_at = "2026-01-01T00:00:04.000Z";
    let rollback = json!({"state": "rolling_back", "began_at": began_at, "ended_at": null, "total": 3, "compensated": 1,
        "failed": 1});
    let more = json!({"reason": {"code": "task_failed", "message": "ship"}, "rollback": rollback, "run": 2});
    insta::assert_snapshot!(drawn(&workflow_of("rolling_back", tasks, more), 80, None), @"
    build-and-test  rolling back  12s  4/4 tasks  wf_0000000000001
    task failed: ship
    rolling back: 1 of 3 tasks compensated, 1 failed: see `outlast dlq`
    run 2
    ├─ ✓ reserve  succeeded  100ms  compensated
    ├─ ✓ charge   succeeded  200ms  compensating
    ├─ ✓ mail     succeeded  300ms  compensation failed
    └─ ✗ ship     failed      50ms  fatal: no stock
    ");
}

#[test]
fn epochs_are_branches() {
    let of = |epoch: &str| json!({"epoch": epoch});
    let tasks = vec![
        task_with("orders", "succeeded", Some(1200), of("extract")),
        task_with("users", "succeeded", Some(1300), of("extract")),
        task_with("join", "running", Some(400), of("transform")),
        task_with("store", "waiting", None, of("load")),
    ];
    insta::assert_snapshot!(drawn(&workflow_of("running", tasks, json!({})), 80, None), @"
    build-and-test  running  12s  2/4 tasks  wf_0000000000001
    ├─ ◆ extract    ended             ██████████ 2/2
    │  ├─ ✓ orders  succeeded   1.2s
    │  └─ ✓ users   succeeded   1.3s
    ├─ ◆ transform  running           ░░░░░░░░░░ 0/1
    │  └─ ● join    running    400ms
    └─ ◆ load       waiting           ░░░░░░░░░░ 0/1
       └─ ○ store   waiting
    ");
}

#[test]
fn a_child_workflow_is_drawn_below_its_task() {
    let child = workflow("failed");
    let started = json!({"kind": "workflow", "child": child.id});
    let tasks = vec![task_with("nested", "running", Some(2000), started), task("after", "waiting", None)];
    let view = workflow_of("running", tasks, json!({"id": "wf_0000000000009"}));
    let children = Children::from([(child.id, child)]);
    let tree = WorkflowTree::new(&view, &children, Duration::ZERO);
    insta::assert_snapshot!(draw(&tree, options(80, None)).join("\n"), @"
    build-and-test  running  12s  0/2 tasks  wf_0000000000009
    ├─ ● nested      running     2.0s  wf_0000000000001
    │  ├─ ✓ fetch    succeeded   1.2s
    │  ├─ ✗ build    failed     900ms  job failed: it exited with 1
    │  └─ ⊘ publish  cancelled         upstream failed
    └─ ○ after       waiting
    ");
}

#[test]
fn a_small_terminal_shows_running_and_failed_tasks_and_counts_the_rest() {
    let mut tasks: Vec<_> = (0..30).map(|number| task(&format!("done-{number}"), "succeeded", Some(10))).collect();
    tasks.push(task("runs", "running", Some(3000)));
    tasks.extend((0..30).map(|number| task(&format!("later-{number}"), "waiting", None)));
    tasks.push(task_with("broken", "failed", Some(20), json!({"reason": {"code": "job_failed", "message": null}})));
    insta::assert_snapshot!(drawn(&workflow_of("running", tasks, json!({})), 60, Some(7)), @"
    build-and-test  running  12s  31/62 tasks  wf_0000000000001
    ├─ ✗ broken  failed      20ms  job failed
    ├─ ● runs    running     3.0s
    ├─ ✓ done-0  succeeded   10ms
    ├─ ✓ done-1  succeeded   10ms
    ├─ ✓ done-2  succeeded   10ms
    └─ … 57 more: 27 succeeded, 30 waiting
    ");
}

#[test]
fn details_of_ended_tasks_are_hidden_first_and_only_as_needed() {
    let of = |epoch: &str| json!({"epoch": epoch});
    let group = |epoch: &str, state: &str| {
        (0..3).map(|number| task_with(&format!("{epoch}-{number}"), state, Some(10), of(epoch))).collect::<Vec<_>>()
    };
    let tasks =
        [group("one", "succeeded"), group("two", "succeeded"), group("three", "running"), group("four", "waiting")];
    let view = workflow_of("running", tasks.concat(), json!({}));
    insta::assert_snapshot!(drawn(&view, 60, Some(14)), @"
    build-and-test  running  12s  6/12 tasks  wf_0000000000001
    ├─ ◆ one         ended             ██████████ 3/3
    ├─ ◆ two         ended             ██████████ 3/3
    │  ├─ ✓ two-0    succeeded   10ms
    │  ├─ ✓ two-1    succeeded   10ms
    │  └─ ✓ two-2    succeeded   10ms
    ├─ ◆ three       running           ░░░░░░░░░░ 0/3
    │  ├─ ● three-0  running     10ms
    │  ├─ ● three-1  running     10ms
    │  └─ ● three-2  running     10ms
    └─ ◆ four        waiting           ░░░░░░░░░░ 0/3
       ├─ ○ four-0   waiting
       ├─ ○ four-1   waiting
       └─ ○ four-2   waiting
    ");
    insta::assert_snapshot!(drawn(&view, 60, Some(7)), @"
    build-and-test  running  12s  6/12 tasks  wf_0000000000001
    ├─ ◆ three       running         ░░░░░░░░░░ 0/3
    │  ├─ ● three-0  running   10ms
    │  └─ … 2 more: 2 running
    ├─ ◆ one         ended           ██████████ 3/3
    ├─ ◆ two         ended           ██████████ 3/3
    └─ ◆ four        waiting         ░░░░░░░░░░ 0/3
    ");
}

#[test]
fn tasks_omitted_by_the_server_are_counted() {
    let tasks = vec![task("first", "succeeded", Some(10)), task("second", "running", Some(10))];
    let counts = json!({"succeeded": 5000, "running": 8, "waiting": 94_992});
    let more = json!({"tasks_total": 100_000, "tasks_left_out": 99_998, "counts": counts});
    insta::assert_snapshot!(drawn(&workflow_of("running", tasks, more), 80, None), @"
    build-and-test  running  12s  5000/100000 tasks  wf_0000000000001
    ├─ ✓ first   succeeded   10ms
    ├─ ● second  running     10ms
    └─ … 99998 more: 94992 waiting, 7 running, 4999 succeeded
    ");
}

#[test]
fn a_narrow_terminal_shows_symbols_without_labels() {
    insta::assert_snapshot!(drawn(&workflow("failed"), 30, None), @"
    build-and-test  failed  12s  …
    ├─ ✓ fetch     1.2s
    ├─ ✗ build    900ms  job fail…
    └─ ⊘ publish         upstream…
    ");
}

#[test]
fn durations_of_running_tasks_advance_between_polls() {
    let tree = WorkflowTree::new(&workflow("running"), &Children::new(), Duration::from_secs(60));
    let lines = draw(&tree, options(80, None));
    assert!(lines[0].contains("1m12s") && lines[2].contains("1m11s"), "{lines:?}");
    assert!(lines[1].contains("1.2s"), "{lines:?}");
}

#[test]
fn only_symbols_of_running_tasks_are_animated() {
    let tree = WorkflowTree::new(&workflow("running"), &Children::new(), Duration::ZERO);
    let frame = |frame| draw(&tree, DrawOptions { frame: Some(frame), ..options(80, None) });
    let differ: Vec<bool> = frame(0).iter().zip(&frame(1)).map(|(one, other)| one != other).collect();
    assert_eq!(differ, [false, false, true, false]);
}

proptest! {
    #[test]
    fn a_tree_is_never_larger_than_its_terminal(
        states in proptest::collection::vec(0usize..5, 0..40),
        names in proptest::collection::vec("[a-zé漢]{1,30}", 40),
        width in 1usize..140,
        height in 2usize..40,
    ) {
        let words = ["waiting", "running", "succeeded", "failed", "skipped"];
        let tasks = states.iter().zip(&names).map(|(state, name)| task(name, words[*state], Some(1000))).collect();
        let view = workflow_of("running", tasks, json!({}));
        let lines = draw(&WorkflowTree::new(&view, &Children::new(), Duration::ZERO), options(width, Some(height)));
        prop_assert!(lines.len() <= height);
        prop_assert!(lines.iter().all(|line| width_of(line) <= width), "{:?}", lines);
    }
}
