//! What templates can refer to, and what can go wrong with them.

use std::borrow::Cow;

use model::id::WorkflowId;
use serde_json::Value;

/// Everything that a template may name.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// An object: every input with its value.
    pub inputs: &'a Value,
    pub tasks: &'a dyn Tasks,
    /// With `for_each`: the item, and its place in the list from 0.
    pub item: Option<(&'a Value, u32)>,
    /// `workflow.id` and `workflow.name`.
    pub workflow: WorkflowId,
    pub name: &'a str,
    /// `schedule.time`: the slot for which a schedule has started the workflow, as RFC 3339 in UTC; else null.
    pub schedule: Option<&'a str>,
    /// `result`: in a compensation, the result of what it undoes.
    pub result: Option<&'a Value>,
}

/// How far the tasks of a workflow have come.
pub trait Tasks {
    /// The result of a task; null when there is none.
    fn result(&self, task: u32) -> Cow<'_, Value>;
    /// Its state, in the words of the API.
    fn state(&self, task: u32) -> &'static str;
}

/// What a job of a workflow is told about its place.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'a> {
    pub workflow: WorkflowId,
    pub task: &'a str,
    pub item: Option<u32>,
    /// How often the workflow was run again from one of its tasks.
    pub run: u32,
    pub tenant: &'a str,
    pub compensation: bool,
}

/// Why a template has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct RenderError {
    /// Where in the task it stands.
    pub field: String,
    pub message: String,
}
