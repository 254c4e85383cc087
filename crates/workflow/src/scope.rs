//! Values that templates refer to, and the error of rendering.

use std::borrow::Cow;

use model::id::WorkflowId;
use serde_json::Value;

/// Values available to templates.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Object of all inputs with their values.
    pub inputs: &'a Value,
    pub tasks: &'a dyn Tasks,
    /// With `for_each`: the item, and its index from 0.
    pub item: Option<(&'a Value, u32)>,
    /// `workflow.id`; `name` is `workflow.name`.
    pub workflow: WorkflowId,
    pub name: &'a str,
    /// `schedule.time`: the slot of the schedule that started the workflow, as RFC 3339 in UTC; else null.
    pub schedule: Option<&'a str>,
    /// `result`: in a compensation, the result of the compensated task.
    pub result: Option<&'a Value>,
}

/// Results and states of the tasks of a workflow.
pub trait Tasks {
    /// Result of a task; null if there is none.
    fn result(&self, task: u32) -> Cow<'_, Value>;
    /// State of a task, as the API names it.
    fn state(&self, task: u32) -> &'static str;
}

/// Identity of a job within its workflow.
#[derive(Debug, Clone, Copy)]
pub struct JobContext<'a> {
    pub workflow: WorkflowId,
    pub task: &'a str,
    pub item: Option<u32>,
    /// Number of reruns of the workflow.
    pub run: u32,
    pub tenant: &'a str,
    pub compensation: bool,
}

/// Failure to render a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct RenderError {
    /// Path of the field in its task.
    pub field: String,
    pub message: String,
}
