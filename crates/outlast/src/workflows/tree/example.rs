//! Example workflows for tests.

use api::{TaskView, WorkflowView};
use serde_json::{Value, json};

/// Time since the start of 2026.
fn at(millis: u64) -> String {
    let seconds = millis / 1000;
    format!("2026-01-01T00:{:02}:{:02}.{:03}Z", seconds / 60, seconds % 60, millis % 1000)
}

/// A task with its duration so far.
pub fn task(name: &str, state: &str, took: Option<u64>) -> Value {
    let has_ended = ["succeeded", "failed", "cancelled", "quarantined"].contains(&state);
    json!({
        "name": name, "kind": "job", "state": state, "item": null, "epoch": null, "needs": [], "job": null,
        "job_state": null, "child": null, "began_at": took.map(|_| at(1000)),
        "ended_at": took.filter(|_| has_ended).map(|took| at(1000 + took)), "duration_ms": took, "due": null,
        "reason": null, "merged_into": null, "compensation": null, "chosen": null, "progress": null, "items_total": null,
    })
}

/// A task with additional fields.
pub fn task_with(name: &str, state: &str, took: Option<u64>, more: Value) -> Value {
    let mut task = task(name, state, took);
    let Value::Object(more) = more else { panic!("additional fields must be an object") };
    more.into_iter().for_each(|(field, value)| task[field] = value);
    task
}

/// A workflow with these tasks and matching counts.
pub fn workflow_of(state: &str, tasks: Vec<Value>, more: Value) -> WorkflowView {
    let mut counts = json!({});
    for task in &tasks {
        let state = task["state"].as_str().unwrap();
        counts[state] = json!(counts[state].as_u64().unwrap_or(0) + 1);
    }
    let ended = ["succeeded", "failed", "cancelled"].contains(&state);
    let mut view = json!({
        "id": "wf_0000000000001", "name": "build-and-test", "state": state, "reason": null, "tenant": "default",
        "queue": "q_0000000000002", "run": 1, "created_at": at(0), "since": at(if ended { 12_300 } else { 0 }),
        "ended_at": ended.then(|| at(12_300)), "duration_ms": 12_300, "submitter": "ada", "parent": null,
        "schedule": null, "labels": {}, "inputs": {"shards": 3}, "result": null, "epoch": null,
        "tasks_total": tasks.len(), "counts": counts,
        "items": {}, "usage": {"cpu_seconds": 0.42, "memory_peak_bytes": 3_145_728, "jobs": 3, "attempts": 4},
        "rollback": null, "deadline": null, "tasks": tasks,
    });
    let Value::Object(more) = more else { panic!("additional fields must be an object") };
    more.into_iter().for_each(|(field, value)| view[field] = value);
    serde_json::from_str(&view.to_string()).unwrap()
}

fn some_tasks(state: &str) -> Vec<Value> {
    match state {
        "succeeded" => vec![task("fetch", "succeeded", Some(1200)), task("build", "succeeded", Some(11_000))],
        "failed" => vec![
            task("fetch", "succeeded", Some(1200)),
            task_with(
                "build",
                "failed",
                Some(900),
                json!({"reason": {"code": "job_failed", "message": "it exited with 1"}}),
            ),
            task_with("publish", "cancelled", None, json!({"reason": {"code": "upstream_failed", "message": null}})),
        ],
        _ => vec![
            task("fetch", "succeeded", Some(1200)),
            task_with("build", "running", Some(11_000), json!({"job": "job_0000000000007", "job_state": "running"})),
            task("publish", "waiting", None),
        ],
    }
}

/// A small workflow in this state.
pub fn workflow(state: &str) -> WorkflowView {
    workflow_of(state, some_tasks(state), json!({}))
}

/// Tasks of a failed workflow.
pub fn tasks() -> Vec<TaskView> {
    workflow("failed").tasks.unwrap()
}

/// Items of a task, with the number per state.
pub fn items(name: &str, states: &[(&str, u32)]) -> Vec<Value> {
    let states = states.iter().flat_map(|(state, count)| std::iter::repeat_n(*state, *count as usize));
    let item = |(number, state)| task_with(name, state, Some(500), json!({"item": number}));
    states.enumerate().map(item).collect()
}
