//! A definition in the form in which it is executed.
//!
//! Tasks refer to each other by their number, which is their place in the definition.

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
    /// The definition as it is kept: normalised JSON, from which [`Plan::load`] makes the same plan again.
    pub source: Bytes,
    /// Names the content of `source`.
    pub digest: Digest,
    pub inputs: Vec<Input>,
    pub tasks: Vec<Task>,
    /// Ordered groups of tasks; with none, every task is in epoch 0.
    pub epochs: Vec<Box<str>>,
    /// What the workflow as a whole comes to.
    pub outputs: Option<ValueTemplate>,
    /// How long the whole workflow may take.
    pub timeout: Option<Millis>,
    /// What its tasks may start as sub-workflows.
    pub children: Vec<Arc<Plan>>,
}

/// One value that a workflow is started with.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub name: Box<str>,
    pub kind: Kind,
    pub default: Option<Value>,
    pub description: Option<Box<str>>,
}

/// The types of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    List,
    Object,
    Any,
}

/// One step.
#[derive(Debug)]
pub struct Task {
    pub name: Box<str>,
    /// Tasks that come before it: those it names, those that its templates refer to, and the switch that chooses it.
    pub needs: Box<[u32]>,
    /// The tasks whose needs name this one.
    pub dependents: Box<[u32]>,
    /// The place of its epoch in [`Plan::epochs`].
    pub epoch: u32,
    pub when: Option<Template>,
    pub for_each: Option<Box<ForEach>>,
    pub act: Act,
    /// Tasks with the same key and the same job run once and share the result.
    pub merge: Option<Template>,
    pub on_failure: OnFailure,
    /// How long it may take, with all its attempts.
    pub timeout: Option<Millis>,
    pub compensation: Option<Box<JobTemplate>>,
    /// Whether any template refers to its result.
    pub is_read: bool,
}

/// What a task does.
#[derive(Debug)]
pub enum Act {
    Job(Box<JobTemplate>),
    /// Starts a child: the place of its plan in [`Plan::children`], and its inputs.
    Workflow {
        child: u32,
        with: ValueTemplate,
    },
    Delay(Delay),
    /// Waits for a person's word.
    Approval {
        message: Template,
    },
    WaitFor {
        signal: Box<str>,
    },
    /// The first case that holds lets its tasks run; those of the others are skipped.
    Switch(Box<[Case]>),
}

/// A branch of a switch.
#[derive(Debug)]
pub struct Case {
    /// Absent: it always holds.
    pub when: Option<Template>,
    /// In the order of their numbers.
    pub then: Box<[u32]>,
}

/// What the failure of a task means for its workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// What depends on it does not run, and the workflow fails.
    #[default]
    Fail,
    /// What depends on it runs all the same.
    Continue,
    /// What was done is undone.
    Compensate,
}

/// Runs a task once for each item of a list.
#[derive(Debug)]
pub struct ForEach {
    pub items: ValueTemplate,
    /// How many run at once; absent: all.
    pub concurrency: Option<u32>,
}

impl Plan {
    /// The number of a task.
    pub fn task(&self, name: &str) -> Option<u32> {
        let at = self.tasks.iter().position(|task| *task.name == *name)?;
        u32::try_from(at).ok()
    }
}

impl ForEach {
    /// The list.
    pub fn items(&self, scope: &Scope<'_>) -> Result<Vec<Value>, RenderError> {
        let refused = |message: String| RenderError { field: "for_each".to_owned(), message };
        match self.items.bounded(scope, limits::ITEMS_BYTES_MAX)? {
            Value::Array(items) if items.len() > limits::ITEMS_MAX => {
                Err(refused(format!("{} items are too many: at most {}", items.len(), limits::ITEMS_MAX)))
            }
            Value::Array(items) => Ok(items),
            other => Err(refused(format!("it comes to {}: a list is needed", crate::expression::kind(&other)))),
        }
    }
}
