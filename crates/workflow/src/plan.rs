//! Plans: compiled definitions, as the engine executes them.
//!
//! Tasks refer to each other by number, their index in the definition.

use std::sync::Arc;

use bytes::Bytes;
use model::spec::Digest;
use model::time::Millis;
use serde_json::Value;

use crate::limits;
use crate::scope::{RenderError, Scope};

pub use crate::delay::Delay;
pub use crate::job::JobTemplate;
pub use crate::template::{Template, ValueTemplate};

/// A compiled definition.
#[derive(Debug)]
pub struct Plan {
    pub name: Box<str>,
    /// Stored form of the definition: normalised JSON, from which [`Plan::load`] compiles the same plan.
    pub source: Bytes,
    /// Content hash of `source`.
    pub digest: Digest,
    pub inputs: Vec<Input>,
    pub tasks: Vec<Task>,
    /// Names of the epochs in order; without any, every task is in epoch 0.
    pub epochs: Vec<Box<str>>,
    /// Result of the workflow.
    pub outputs: Option<ValueTemplate>,
    /// Timeout of the whole workflow.
    pub timeout: Option<Millis>,
    /// Nested definitions, which tasks start as sub-workflows.
    pub children: Vec<Arc<Plan>>,
}

/// Declared input of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub name: Box<str>,
    pub kind: InputType,
    pub default: Option<Value>,
    pub description: Option<Box<str>>,
}

/// Type of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputType {
    String,
    Integer,
    Number,
    Boolean,
    List,
    Object,
    Any,
}

/// Node of the workflow graph.
#[derive(Debug)]
pub struct Task {
    pub name: Box<str>,
    /// Prerequisites: the tasks in `needs`, those that its templates refer to, and the switch that selects it.
    pub needs: Box<[u32]>,
    /// Tasks that need this one.
    pub dependents: Box<[u32]>,
    /// Index in [`Plan::epochs`].
    pub epoch: u32,
    pub when: Option<Template>,
    pub for_each: Option<Box<ForEach>>,
    pub work: TaskWork,
    /// Tasks with the same key and the same job run once and share the result.
    pub merge: Option<Template>,
    pub on_failure: OnFailure,
    /// Timeout of the task with all attempts.
    pub timeout: Option<Millis>,
    pub compensation: Option<Box<JobTemplate>>,
    /// Whether any template reads its result.
    pub is_read: bool,
}

/// Work of a task.
#[derive(Debug)]
pub enum TaskWork {
    Job(Box<JobTemplate>),
    /// Starts a sub-workflow: index of its plan in [`Plan::children`], and its inputs.
    Workflow {
        child: u32,
        with: ValueTemplate,
    },
    Delay(Delay),
    /// Waits for a person's approval.
    Approval {
        message: Template,
    },
    WaitFor {
        signal: Box<str>,
    },
    /// The tasks of the first matching case run; those of all others are skipped.
    Switch(Box<[Case]>),
}

/// Case of a switch.
#[derive(Debug)]
pub struct Case {
    /// `None`: always matches.
    pub when: Option<Template>,
    /// Sorted by number.
    pub then: Box<[u32]>,
}

/// Effect of a task's failure on its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Dependents do not run, and the workflow fails.
    #[default]
    Fail,
    /// Dependents run nevertheless.
    Continue,
    /// The workflow is rolled back.
    Compensate,
}

/// List of a task that runs once for each item.
#[derive(Debug)]
pub struct ForEach {
    pub items: ValueTemplate,
    /// Maximum number of items at once; `None`: all.
    pub concurrency: Option<u32>,
}

impl Plan {
    /// Number of a task by name.
    pub fn task(&self, name: &str) -> Option<u32> {
        let at = self.tasks.iter().position(|task| *task.name == *name)?;
        u32::try_from(at).ok()
    }
}

impl ForEach {
    /// Renders the list.
    pub fn items(&self, scope: &Scope<'_>) -> Result<Vec<Value>, RenderError> {
        let refused = |message: String| RenderError { field: "for_each".to_owned(), message };
        match self.items.bounded(scope, limits::ITEMS_BYTES_MAX)? {
            Value::Array(items) if items.len() > limits::ITEMS_MAX => {
                Err(refused(format!("{} items: at most {} are allowed", items.len(), limits::ITEMS_MAX)))
            }
            Value::Array(items) => Ok(items),
            other => Err(refused(format!(
                "expected a list, but the template evaluates to {}",
                crate::expression::kind(&other)
            ))),
        }
    }
}
