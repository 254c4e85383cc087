//! The job that a task submits: templates on one side, a validated spec on the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::blob::BlobId;
use model::spec::{JobSpec, Limits, Priority, Run, Sandbox};
use serde::Deserialize;

use crate::limits;
use crate::scope::{JobFacts, RenderError, Scope};
use crate::template::{ValueTemplate, parse_rendered};

const WORKFLOW_VARIABLE: &str = "OUTLAST_WORKFLOW";
const TASK_VARIABLE: &str = "OUTLAST_TASK";
const ITEM_VARIABLE: &str = "OUTLAST_ITEM";
const KEY_VARIABLE: &str = "OUTLAST_IDEMPOTENCY_KEY";
const COMPENSATION_LABEL: &str = "saga_compensation";

/// A job, compiled.
#[derive(Debug)]
pub struct JobTemplate {
    /// The `run` of the spec.
    run: ValueTemplate,
    /// Everything else that is said of it. Shared: many tasks say the same, or nothing.
    fields: Option<Arc<Fields>>,
}

#[derive(Debug)]
pub(crate) struct Fields {
    pub max_retries: Option<u32>,
    pub timeout_ms: Option<u64>,
    pub rest: Rest,
}

#[derive(Debug)]
pub(crate) enum Rest {
    Constant(Box<Given>),
    Template(ValueTemplate),
}

/// What a task may say of its job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Given {
    topic: Option<String>,
    priority: Option<Priority>,
    labels: BTreeMap<String, String>,
    sandbox: Option<Sandbox>,
    inputs: BTreeMap<String, BlobId>,
    outputs: Vec<String>,
    limits: Limits,
    requires: Vec<String>,
}

impl JobTemplate {
    pub(crate) fn new(run: ValueTemplate, fields: Option<Arc<Fields>>) -> Self {
        Self { run, fields }
    }

    /// The spec, with every template filled in. It keeps the limits of a spec.
    pub fn render(&self, scope: &Scope<'_>, facts: &JobFacts<'_>) -> Result<JobSpec, RenderError> {
        let bytes_max = limits::RENDERED_BYTES_MAX;
        let run: Run = self.run.with_text(scope, bytes_max, |text| parse_rendered("run", text))??;
        let mut spec = JobSpec::new(run);
        spec.tenant.clear();
        spec.tenant.push_str(facts.tenant);
        if let Some(fields) = &self.fields {
            spec.max_retries = fields.max_retries;
            spec.timeout_ms = fields.timeout_ms;
            match &fields.rest {
                Rest::Constant(given) => Given::clone(given).apply(&mut spec),
                Rest::Template(template) => {
                    let given: Given = template.with_text(scope, bytes_max, |text| parse_rendered("", text))??;
                    given.apply(&mut spec);
                }
            }
        }
        if facts.compensation {
            spec.priority = Priority::Critical;
            spec.labels.insert(COMPENSATION_LABEL.to_owned(), "true".to_owned());
        }
        match &mut spec.run {
            Run::Process(process) => tell(&mut process.env, facts),
            Run::Wasm(wasm) => tell(&mut wasm.env, facts),
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

    /// How often it is tried again; absent: as its queue says.
    pub fn retries(&self) -> Option<u32> {
        self.fields.as_ref().and_then(|fields| fields.max_retries)
    }

    /// Whether every item and every run gives the same spec but for its facts.
    pub fn is_constant(&self) -> bool {
        let fields = self.fields.as_ref().is_none_or(|fields| match &fields.rest {
            Rest::Constant(_) => true,
            Rest::Template(_) => false,
        });
        fields && self.run.is_constant()
    }
}

impl Given {
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
    }
}

/// Variables that tell a program where it is. What the user has set stays.
fn tell(env: &mut BTreeMap<String, String>, facts: &JobFacts<'_>) {
    let mut set = |name: &str, value: &dyn Fn() -> String| {
        if !env.contains_key(name) {
            env.insert(name.to_owned(), value());
        }
    };
    set(WORKFLOW_VARIABLE, &|| facts.workflow.to_string());
    set(TASK_VARIABLE, &|| facts.task.to_owned());
    if let Some(item) = facts.item {
        set(ITEM_VARIABLE, &|| item.to_string());
    }
    set(KEY_VARIABLE, &|| idempotency_key(facts));
}

/// The same for all attempts at the same thing, and different for anything else.
fn idempotency_key(facts: &JobFacts<'_>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&facts.workflow.0.to_le_bytes());
    // Without an item it is no number that an item could have.
    hasher.update(&facts.item.map_or(u64::MAX, u64::from).to_le_bytes());
    hasher.update(&facts.run.to_le_bytes());
    hasher.update(&[u8::from(facts.compensation)]);
    hasher.update(facts.task.as_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}
