//! Workflows over HTTP: every route, with real tasks.

mod changes;
mod compensation;
mod histories;
mod lists;
mod results;
mod returns;
mod shapes;
mod signals;
mod starts;
mod steering;
mod wrong;

use serde_json::{Value, json};

use crate::support::{Api, text};

/// A definition with these tasks. `json!` sorts them by name.
pub fn of(tasks: Value) -> Value {
    json!({"name": "example", "tasks": tasks})
}

/// A task with this result.
pub fn says(value: impl Into<Value>) -> Value {
    json!({"run": {"echo": {"value": value.into()}}})
}

/// A task that takes longer than any test waits.
pub fn endless() -> Value {
    json!({"run": {"echo": {"delay_ms": 600_000}}})
}

/// Starts a workflow, which must be accepted. Returns its id.
pub async fn start(api: &Api, definition: &Value) -> String {
    text(&api.post("/v1/workflows", &json!({"definition": definition})).await.expect(201)["id"])
}

/// Starts a workflow and waits for its end.
pub async fn run(api: &Api, definition: &Value) -> Value {
    let id = start(api, definition).await;
    ended(api, &id).await
}

/// Waits for the end of a workflow.
pub async fn ended(api: &Api, id: &str) -> Value {
    let workflow = api.get(&format!("/v1/workflows/{id}?wait_ms=25000")).await.expect(200);
    assert!(["succeeded", "failed", "cancelled"].contains(&text(&workflow["state"]).as_str()), "{workflow}");
    workflow
}

/// Polls a workflow until the condition holds.
pub async fn when(api: &Api, id: &str, condition: impl Fn(&Value) -> bool) -> Value {
    api.seen(&format!("/v1/workflows/{id}"), condition).await
}

/// A task of a workflow shown with its tasks.
#[track_caller]
pub fn task<'a>(workflow: &'a Value, name: &str) -> &'a Value {
    let tasks = workflow["tasks"].as_array().unwrap_or_else(|| panic!("no tasks in {workflow}"));
    tasks.iter().find(|task| task["name"] == name).unwrap_or_else(|| panic!("no task {name} in {workflow}"))
}

/// States of all tasks by name.
pub fn states(workflow: &Value) -> Value {
    let tasks = workflow["tasks"].as_array().unwrap();
    tasks.iter().map(|task| (text(&task["name"]), task["state"].clone())).collect()
}

/// Polls a workflow until a task is in this state.
pub async fn task_in(api: &Api, id: &str, name: &str, state: &str) -> Value {
    when(api, id, |workflow| task(workflow, name)["state"] == state).await
}
