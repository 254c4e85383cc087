//! Plans and what their templates see.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::WorkflowId;
use serde_json::{Value, json};
use workflow::scope::{JobFacts, Scope, Tasks};
use workflow::{Diagnostics, Plan, Source, compile};

/// The plan of a definition that is good.
pub fn plan(yaml: &str) -> Arc<Plan> {
    compile(Source::Yaml(yaml)).unwrap_or_else(|problems| panic!("{problems}\n{yaml}"))
}

/// What is wrong with a definition that is not.
pub fn problems(yaml: &str) -> Diagnostics {
    match compile(Source::Yaml(yaml)) {
        Ok(_) => panic!("nothing is wrong with it\n{yaml}"),
        Err(problems) => problems,
    }
}

/// As a user sees it.
pub fn told(yaml: &str) -> String {
    problems(yaml).display(Some("w.yaml")).to_string()
}

/// The codes of what is wrong.
pub fn codes(yaml: &str) -> Vec<&'static str> {
    problems(yaml).0.iter().map(|problem| problem.code).collect()
}

/// Results and states of tasks, by their number.
#[derive(Default)]
pub struct Done {
    pub results: BTreeMap<u32, Value>,
    /// Gives results away as copies, as an engine does that has to read them first.
    pub owned: bool,
}

impl Tasks for Done {
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

/// Everything that a template may see.
pub struct World {
    pub inputs: Value,
    pub tasks: Done,
    pub item: Option<(Value, u32)>,
    pub schedule: Option<String>,
    pub result: Option<Value>,
}

impl Default for World {
    fn default() -> Self {
        Self { inputs: json!({}), tasks: Done::default(), item: None, schedule: None, result: None }
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

pub fn facts() -> JobFacts<'static> {
    JobFacts { workflow: WorkflowId(7), task: "a", item: None, run: 0, tenant: "acme", compensation: false }
}
