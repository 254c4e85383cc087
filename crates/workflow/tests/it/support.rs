//! Test helpers: plans, diagnostics, and values for templates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::WorkflowId;
use serde_json::{Value, json};
use workflow::scope::{JobContext, Scope, Tasks};
use workflow::{Diagnostics, Plan, Source, compile};

/// Plan of a valid definition.
pub fn plan(yaml: &str) -> Arc<Plan> {
    compile(Source::Yaml(yaml)).unwrap_or_else(|problems| panic!("{problems}\n{yaml}"))
}

/// Diagnostics of an invalid definition.
pub fn problems(yaml: &str) -> Diagnostics {
    match compile(Source::Yaml(yaml)) {
        Ok(_) => panic!("the definition is valid\n{yaml}"),
        Err(problems) => problems,
    }
}

/// Diagnostics as displayed to users.
pub fn report(yaml: &str) -> String {
    problems(yaml).display(Some("w.yaml")).to_string()
}

/// Codes of the diagnostics.
pub fn codes(yaml: &str) -> Vec<&'static str> {
    problems(yaml).0.iter().map(|problem| problem.code).collect()
}

/// Results and states of tasks by number.
#[derive(Default)]
pub struct TaskResults {
    pub results: BTreeMap<u32, Value>,
    /// Returns owned results, as the engine does for results that it must load.
    pub owned: bool,
}

impl Tasks for TaskResults {
    fn result(&self, task: u32) -> Cow<'_, Value> {
        match self.results.get(&task) {
            Some(result) if self.owned => Cow::Owned(result.clone()),
            Some(result) => Cow::Borrowed(result),
            None => Cow::Owned(Value::Null),
        }
    }

    fn state(&self, task: u32) -> &'static str {
        if self.results.contains_key(&task) { "succeeded" } else { "pending" }
    }
}

/// Values for templates.
pub struct World {
    pub inputs: Value,
    pub tasks: TaskResults,
    pub item: Option<(Value, u32)>,
    pub schedule: Option<String>,
    pub result: Option<Value>,
}

impl Default for World {
    fn default() -> Self {
        Self { inputs: json!({}), tasks: TaskResults::default(), item: None, schedule: None, result: None }
    }
}

impl World {
    pub fn with_inputs(inputs: Value) -> Self {
        Self { inputs, ..Self::default() }
    }

    pub fn scope(&self) -> Scope<'_> {
        Scope {
            inputs: &self.inputs,
            tasks: &self.tasks,
            item: self.item.as_ref().map(|(item, index)| (item, *index)),
            workflow: WorkflowId(7),
            name: "the-name",
            schedule: self.schedule.as_deref(),
            result: self.result.as_ref(),
        }
    }
}

pub fn job_context() -> JobContext<'static> {
    JobContext { workflow: WorkflowId(7), task: "a", item: None, run: 0, tenant: "acme", compensation: false }
}
