//! The scope of a workflow's templates.

use std::borrow::Cow;

use model::json::Json;
use model::workflow::TaskKey;
use serde_json::Value;
use workflow::scope::{Scope, Tasks};

use super::live::LiveWorkflow;

/// Decodes stored JSON.
pub(crate) fn value_of(json: &Json) -> Value {
    // It was validated at submission.
    serde_json::from_slice(json.as_bytes()).unwrap_or(Value::Null)
}

/// The tasks of a workflow as templates see them.
pub(crate) struct TaskView<'a>(pub &'a LiveWorkflow);

impl Tasks for TaskView<'_> {
    fn result(&self, task: u32) -> Cow<'_, Value> {
        // Decoded once and cached.
        let read = || Box::new(self.0.result_of(TaskKey::of(task)).map_or(Value::Null, value_of));
        let live_task = self.0.tasks.get(task as usize).filter(|live_task| live_task.state.is_terminal());
        live_task.map_or(Cow::Owned(Value::Null), |live_task| Cow::Borrowed(live_task.value.get_or_init(read).as_ref()))
    }

    fn state(&self, task: u32) -> &'static str {
        self.0.tasks.get(task as usize).map_or("", |live_task| live_task.state.as_str())
    }
}

impl LiveWorkflow {
    /// Scope of a task's or item's templates.
    pub fn scope<'a>(&'a self, view: &'a TaskView<'a>, task_key: TaskKey) -> Scope<'a> {
        let items = self.tasks.get(task_key.task as usize).and_then(|live_task| live_task.for_each.as_ref());
        let item = task_key.item.and_then(|item| Some((items?.values.get(item as usize)?, item)));
        Scope { item, ..self.workflow_scope(view) }
    }

    /// Scope of the workflow's own templates.
    pub fn workflow_scope<'a>(&'a self, view: &'a TaskView<'a>) -> Scope<'a> {
        Scope {
            inputs: &self.inputs,
            tasks: view,
            item: None,
            workflow: self.record.id,
            name: &self.record.name,
            schedule: self.slot_text.as_deref(),
            result: None,
        }
    }
}
