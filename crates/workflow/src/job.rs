//! Job templates of tasks, rendered to validated job specs.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::blob::BlobId;
use model::spec::{JobSpec, Limits, Priority, Run, Sandbox};
use serde::Deserialize;

use crate::limits;
use crate::scope::{JobContext, RenderError, Scope};
use crate::template::{ValueTemplate, parse_rendered};

const WORKFLOW_VARIABLE: &str = "OUTLAST_WORKFLOW";
const TASK_VARIABLE: &str = "OUTLAST_TASK";
const ITEM_VARIABLE: &str = "OUTLAST_ITEM";
const KEY_VARIABLE: &str = "OUTLAST_IDEMPOTENCY_KEY";
const COMPENSATION_LABEL: &str = "saga_compensation";

/// Compiled job of a task or compensation.
#[derive(Debug)]
pub struct JobTemplate {
    /// `run` of the spec.
    run: ValueTemplate,
    /// All other fields. Shared, because they are the same for many tasks.
    fields: Option<Arc<JobFields>>,
}

#[derive(Debug)]
pub(crate) struct JobFields {
    pub max_retries: Option<u32>,
    pub timeout_ms: Option<u64>,
    pub spec_fields: SpecFieldsTemplate,
}

#[derive(Debug)]
pub(crate) enum SpecFieldsTemplate {
    Constant(Box<SpecFields>),
    Template(ValueTemplate),
}

/// Fields of a job spec that a task can set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SpecFields {
    topic: Option<String>,
    priority: Option<Priority>,
    labels: BTreeMap<String, String>,
    sandbox: Option<Sandbox>,
    inputs: BTreeMap<String, BlobId>,
    outputs: Vec<String>,
    limits: Limits,
    requires: Vec<String>,
    exclusive: bool,
}

impl JobTemplate {
    pub(crate) fn new(run: ValueTemplate, fields: Option<Arc<JobFields>>) -> Self {
        Self { run, fields }
    }

    /// Renders all templates and validates the spec.
    pub fn render(&self, scope: &Scope<'_>, context: &JobContext<'_>) -> Result<JobSpec, RenderError> {
        let bytes_max = limits::RENDERED_BYTES_MAX;
        let run: Run = self.run.with_text(scope, bytes_max, |text| parse_rendered("run", text))??;
        let mut spec = JobSpec::new(run);
        spec.tenant.clear();
        spec.tenant.push_str(context.tenant);
        if let Some(fields) = &self.fields {
            spec.max_retries = fields.max_retries;
            spec.timeout_ms = fields.timeout_ms;
            match &fields.spec_fields {
                SpecFieldsTemplate::Constant(given) => SpecFields::clone(given).apply(&mut spec),
                SpecFieldsTemplate::Template(template) => {
                    let given: SpecFields = template.with_text(scope, bytes_max, |text| parse_rendered("", text))??;
                    given.apply(&mut spec);
                }
            }
        }
        if context.compensation {
            spec.priority = Priority::Critical;
            spec.labels.insert(COMPENSATION_LABEL.to_owned(), "true".to_owned());
        }
        match &mut spec.run {
            Run::Process(process) => set_variables(&mut process.env, context),
            Run::Wasm(wasm) => set_variables(&mut wasm.env, context),
            Run::Echo(_) => {}
        }
        spec.validate().map_err(|invalid| {
            let field = match invalid.field {
                "max_retries" => "retry",
                "timeout_ms" => "attempt_timeout",
                other => other,
            };
            RenderError { field: field.to_owned(), message: invalid.message }
        })?;
        Ok(spec)
    }

    /// Maximum number of retries; `None`: the queue's default.
    pub fn retries(&self) -> Option<u32> {
        self.fields.as_ref().and_then(|fields| fields.max_retries)
    }

    /// Whether all items and runs render to the same spec, apart from the [`JobContext`].
    pub fn is_constant(&self) -> bool {
        let fields = self.fields.as_ref().is_none_or(|fields| match &fields.spec_fields {
            SpecFieldsTemplate::Constant(_) => true,
            SpecFieldsTemplate::Template(_) => false,
        });
        fields && self.run.is_constant()
    }
}

impl SpecFields {
    fn apply(self, spec: &mut JobSpec) {
        if let Some(topic) = self.topic {
            spec.topic = topic;
        }
        if let Some(priority) = self.priority {
            spec.priority = priority;
        }
        spec.labels = self.labels;
        spec.sandbox = self.sandbox;
        spec.inputs = self.inputs;
        spec.outputs = self.outputs;
        spec.limits = self.limits;
        spec.requires = self.requires;
        spec.exclusive = self.exclusive;
    }
}

/// Sets environment variables that identify the task. Does not override the user's own.
fn set_variables(env: &mut BTreeMap<String, String>, context: &JobContext<'_>) {
    let mut set = |name: &str, value: &dyn Fn() -> String| {
        if !env.contains_key(name) {
            env.insert(name.to_owned(), value());
        }
    };
    set(WORKFLOW_VARIABLE, &|| context.workflow.to_string());
    set(TASK_VARIABLE, &|| context.task.to_owned());
    if let Some(item) = context.item {
        set(ITEM_VARIABLE, &|| item.to_string());
    }
    set(KEY_VARIABLE, &|| idempotency_key(context));
}

/// The same for all attempts of a job, and different for every other job of any workflow.
fn idempotency_key(context: &JobContext<'_>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&context.workflow.0.to_le_bytes());
    // Without an item: a number that no item has.
    hasher.update(&context.item.map_or(u64::MAX, u64::from).to_le_bytes());
    hasher.update(&context.run.to_le_bytes());
    hasher.update(&[u8::from(context.compensation)]);
    hasher.update(context.task.as_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}
