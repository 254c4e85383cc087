//! Workflows over HTTP: every route, against real tasks.

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

use crate::common::{Api, text};

/// A definition with these tasks. In JSON as it is written here they are in the order of their names.
pub fn of(tasks: Value) -> Value {
    json!({"name": "example", "tasks": tasks})
}

/// A task that comes to a value.
pub fn says(value: impl Into<Value>) -> Value {
    json!({"run": {"echo": {"value": value.into()}}})
}

/// A task that takes longer than any test waits.
pub fn endless() -> Value {
    json!({"run": {"echo": {"delay_ms": 600_000}}})
}

/// Starts a workflow that must be accepted; its id.
pub async fn start(api: &Api, definition: &Value) -> String {
    text(&api.post("/v1/workflows", &json!({"definition": definition})).await.expect(201)["id"])
}

/// Starts one and waits until it has ended.
pub async fn run(api: &Api, definition: &Value) -> Value {
    let id = start(api, definition).await;
    ended(api, &id).await
}

/// The workflow once it has ended.
pub async fn ended(api: &Api, id: &str) -> Value {
    let workflow = api.get(&format!("/v1/workflows/{id}?wait_ms=25000")).await.expect(200);
    assert!(["succeeded", "failed", "cancelled"].contains(&text(&workflow["state"]).as_str()), "{workflow}");
    workflow
}

/// The workflow once it is as wanted.
pub async fn when(api: &Api, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    api.seen(&format!("/v1/workflows/{id}"), wanted).await
}

/// A task of a workflow that is shown whole.
#[track_caller]
pub fn task<'a>(workflow: &'a Value, name: &str) -> &'a Value {
    let tasks = workflow["tasks"].as_array().unwrap_or_else(|| panic!("no tasks in {workflow}"));
    tasks.iter().find(|task| task["name"] == name).unwrap_or_else(|| panic!("no task {name} in {workflow}"))
}

/// The states of all tasks, by their names.
pub fn states(workflow: &Value) -> Value {
    let tasks = workflow["tasks"].as_array().unwrap();
    tasks.iter().map(|task| (text(&task["name"]), task["state"].clone())).collect()
}

/// Waits until a task is in a state, and shows the workflow.
pub async fn task_in(api: &Api, id: &str, name: &str, state: &str) -> Value {
    when(api, id, |workflow| task(workflow, name)["state"] == state).await
}
