//! Compiles the job of a task or compensation, with the defaults of the definition applied.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use model::spec::ExecutorKind;
use serde_json::Value;

use super::Compiler;
use super::shape::{ECHO, Holes, LIMITS, PROCESS, Shape, WASM};
use super::templates::TemplateSite;
use crate::diagnostic::code;
use crate::job::{JobFields, JobTemplate, SpecFields, SpecFieldsTemplate};
use crate::node::{Data, MapEntry, Node};
use crate::path::FieldPath;
use crate::scope::{JobContext, RenderError, Scope, Tasks};
use crate::slice::Slice;
use crate::template::{Hole, ValueTemplate, parse_rendered};

/// Fields of a job other than `run`, `retry` and `attempt_timeout`.
pub(super) const JOB_FIELDS: [(&str, Shape); 9] = [
    ("topic", Shape::Text),
    ("priority", Shape::Keyword(&["critical", "interactive", "batch"])),
    ("requires", Shape::Texts),
    ("labels", Shape::TextMap),
    ("sandbox", Shape::Keyword(&["strict", "standard", "none"])),
    ("limits", LIMITS),
    ("exclusive", Shape::Boolean),
    ("inputs", Shape::TextMap),
    ("outputs", Shape::Texts),
];
/// The first so many of these can be set in `defaults`; files belong to one job.
pub(super) const DEFAULT_JOB_FIELDS: usize = 7;

/// Retries and attempt timeout of a job. Constants, because the engine reads them before rendering.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct AttemptLimits {
    pub max_retries: Option<u32>,
    pub timeout_ms: Option<u64>,
}

/// Defaults of one definition, and the job fields compiled so far.
#[derive(Default)]
pub(super) struct Defaults<'n, 'a> {
    pub fields: Vec<&'n MapEntry<'a>>,
    pub attempt_limits: AttemptLimits,
    /// By text, so that equal fields are stored once.
    shared: HashMap<(Vec<u8>, AttemptLimits), Arc<JobFields>, foldhash::fast::RandomState>,
}

impl Compiler {
    /// Compiles the job of a task or compensation. `entries` are all fields of the task or compensation.
    pub(super) fn job<'n, 'a>(
        &mut self,
        entries: &'n [MapEntry<'a>],
        run: &Node<'_>,
        defaults: &mut Defaults<'n, 'a>,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<JobTemplate> {
        let before = self.problems.count();
        let executor = self.executor(run, path.field("run"));
        let attempt_limits = self.attempt_limits(entries, path, defaults.attempt_limits);
        let mut holes = Vec::new();
        let mut fields = None;
        if let Some((executor, node)) = executor {
            let shift = -i64::from(run.span.0);
            let shape = match executor {
                ExecutorKind::Process => PROCESS,
                ExecutorKind::Echo => ECHO,
                ExecutorKind::Wasm => WASM,
            };
            let path_of_run = path.field("run");
            let mut found = Holes { list: &mut holes, shift };
            self.check_shape(node, shape, path_of_run.field(executor.as_str()), site, &mut found);
            fields = self.job_fields(entries, executor, attempt_limits, defaults, path, site);
        }
        if self.problems.count() > before {
            return None;
        }
        let run_template = ValueTemplate::new(Slice::new(&self.source, run.span), holes);
        let template = JobTemplate::new(run_template, fields);
        self.check_constant(&template, run, path, site);
        Some(template)
    }

    /// Executor of the job, and the node below its name.
    fn executor<'n, 'a>(&mut self, run: &'n Node<'a>, path: FieldPath<'_>) -> Option<(ExecutorKind, &'n Node<'a>)> {
        let entries = self.map(run, path, "a command or an object with `process`, `echo` or `wasm`")?;
        self.known_fields(entries, path, &["process", "echo", "wasm"]);
        let [only] = entries else {
            let message = "exactly one of `process`, `echo` and `wasm` is required";
            self.problems.add(run.position, code::CONFLICT, path, message);
            return None;
        };
        let executor = ExecutorKind::ALL.into_iter().find(|executor| executor.as_str() == only.key)?;
        if executor == ExecutorKind::Wasm && only.value.get("component").is_none() {
            let message = "the component is missing: name its blob";
            self.problems.add(only.position, code::MISSING_FIELD, path.field("wasm").field("component"), message);
        }
        self.map(&only.value, path.field(&only.key), "an object")?;
        Some((executor, &only.value))
    }

    fn attempt_limits(
        &mut self,
        entries: &[MapEntry<'_>],
        path: FieldPath<'_>,
        defaults: AttemptLimits,
    ) -> AttemptLimits {
        let mut attempt_limits = defaults;
        for entry in entries {
            let path = path.field(&entry.key);
            match &*entry.key {
                "retry" => attempt_limits.max_retries = self.retry(&entry.value, path),
                "attempt_timeout" => {
                    attempt_limits.timeout_ms = self.timeout(&entry.value, path).map(|timeout| timeout.0)
                }
                _ => {}
            }
        }
        attempt_limits
    }

    /// `retry: 3`, or `retry: {limit: 3}`.
    fn retry(&mut self, node: &Node<'_>, path: FieldPath<'_>) -> Option<u32> {
        let most = model::limits::RETRIES_MAX;
        let Data::Map(entries) = &node.data else {
            return self.number(node, path, 0, most);
        };
        self.known_fields(entries, path, &["limit"]);
        match node.get("limit") {
            Some(limit) => self.number(limit, path.field("limit"), 0, most),
            None => {
                self.problems.add(
                    node.position,
                    code::MISSING_FIELD,
                    path.field("limit"),
                    "the number of retries is missing",
                );
                None
            }
        }
    }

    pub(super) fn default_attempt_limits(&mut self, entries: &[MapEntry<'_>], path: FieldPath<'_>) -> AttemptLimits {
        self.attempt_limits(entries, path, AttemptLimits::default())
    }

    /// Fields of the task override the defaults; labels and limits are merged field by field.
    fn job_fields<'n, 'a>(
        &mut self,
        entries: &'n [MapEntry<'a>],
        executor: ExecutorKind,
        attempt_limits: AttemptLimits,
        defaults: &mut Defaults<'n, 'a>,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<Arc<JobFields>> {
        let before = self.problems.count();
        let mut text = Vec::new();
        let mut holes = Vec::new();
        for (name, shape) in JOB_FIELDS {
            let own = entries.iter().find(|entry| entry.key == name).map(|entry| &entry.value);
            let inherited = defaults.fields.iter().find(|entry| entry.key == name).map(|entry| &entry.value);
            if own.is_none() && inherited.is_none() {
                continue;
            }
            text.push(if text.is_empty() { b'{' } else { b',' });
            text.extend_from_slice(format!("\"{name}\":").as_bytes());
            let field = path.field(name);
            let mut writer = FieldWriter { compiler: self, text: &mut text, holes: &mut holes, site: &mut *site };
            match (own, inherited) {
                (Some(own), Some(inherited)) if matches!(name, "labels" | "limits") => {
                    writer.merged(own, inherited, shape, executor, field);
                }
                (Some(own), _) => writer.value(own, shape, field),
                (None, Some(inherited)) => writer.inherited(inherited, name, shape, executor, field),
                (None, None) => {}
            }
        }
        if text.is_empty() && attempt_limits == AttemptLimits::default() || self.problems.count() > before {
            return None;
        }
        text.extend_from_slice(if text.is_empty() { b"{}" } else { b"}" });
        self.shared_fields(text, holes, attempt_limits, defaults, path, entries)
    }

    fn shared_fields(
        &mut self,
        text: Vec<u8>,
        holes: Vec<Hole>,
        attempt_limits: AttemptLimits,
        defaults: &mut Defaults<'_, '_>,
        path: FieldPath<'_>,
        entries: &[MapEntry<'_>],
    ) -> Option<Arc<JobFields>> {
        let key = (text, attempt_limits);
        if let Some(shared) = defaults.shared.get(&key) {
            return Some(Arc::clone(shared));
        }
        let spec_fields = if holes.is_empty() {
            match parse_rendered::<SpecFields>("", &key.0) {
                Ok(given) => SpecFieldsTemplate::Constant(Box::new(given)),
                Err(error) => {
                    self.report_invalid(entries, path, &error);
                    return None;
                }
            }
        } else {
            let end = u32::try_from(key.0.len()).unwrap_or(u32::MAX);
            let own = Arc::new(Bytes::from(key.0.clone()));
            SpecFieldsTemplate::Template(ValueTemplate::new(Slice::new(&own, (0, end)), holes))
        };
        let fields = Arc::new(JobFields {
            max_retries: attempt_limits.max_retries,
            timeout_ms: attempt_limits.timeout_ms,
            spec_fields,
        });
        defaults.shared.insert(key, Arc::clone(&fields));
        Some(fields)
    }

    /// Renders and validates a job without templates now, so that an invalid spec is reported at compile time.
    fn check_constant(&mut self, template: &JobTemplate, run: &Node<'_>, path: FieldPath<'_>, site: &TemplateSite<'_>) {
        if !template.is_constant() {
            return;
        }
        let scope = Scope {
            inputs: &Value::Null,
            tasks: &NoTasks,
            item: None,
            workflow: model::id::WorkflowId(0),
            name: "",
            schedule: None,
            result: None,
        };
        let context = JobContext {
            workflow: model::id::WorkflowId(0),
            task: "",
            item: site.has_item.then_some(0),
            run: 0,
            tenant: "default",
            // Only compensations have a `result`.
            compensation: site.has_result,
        };
        if let Err(error) = template.render(&scope, &context) {
            let field = error.field.as_str();
            let position = position_of(run, field).unwrap_or(run.position);
            self.problems.add(position, code::INVALID_VALUE, format!("{path}.{field}"), error.message);
        }
    }

    fn report_invalid(&mut self, entries: &[MapEntry<'_>], path: FieldPath<'_>, error: &RenderError) {
        let first = error.field.split(['.', '[']).next().unwrap_or_default();
        let position = entries.iter().find(|entry| entry.key == first).map_or_else(
            || entries.first().map(|entry| entry.position).unwrap_or_default(),
            |entry| entry.value.position,
        );
        self.problems.add(position, code::INVALID_VALUE, format!("{path}.{}", error.field), error.message.clone());
    }
}

/// Position of a field such as `run.process.command` within `run`.
fn position_of(run: &Node<'_>, field: &str) -> Option<crate::diagnostic::Position> {
    let mut node = run;
    for name in field.strip_prefix("run.")?.split('.') {
        node = node.get(name)?;
    }
    Some(node.position)
}

/// Writes the fields of a job into one JSON object.
struct FieldWriter<'w, 's> {
    compiler: &'w mut Compiler,
    text: &'w mut Vec<u8>,
    holes: &'w mut Vec<Hole>,
    site: &'w mut TemplateSite<'s>,
}

impl FieldWriter<'_, '_> {
    fn value(&mut self, node: &Node<'_>, shape: Shape, path: FieldPath<'_>) {
        let start = self.text.len();
        let shift = start as i64 - i64::from(node.span.0);
        let mut holes = Holes { list: self.holes, shift };
        self.compiler.check_shape(node, shape, path, self.site, &mut holes);
        let source = Arc::clone(&self.compiler.source);
        self.text.extend_from_slice(&source[node.span.0 as usize..node.span.1 as usize]);
    }

    /// Omits defaults that do not apply to the executor, so that the same defaults serve different kinds of jobs.
    fn inherited(&mut self, node: &Node<'_>, name: &str, shape: Shape, executor: ExecutorKind, path: FieldPath<'_>) {
        match (name, &node.data) {
            ("limits", Data::Map(entries)) => {
                self.entries(entries.iter().filter(|entry| limit_applies(executor, &entry.key)), shape, path)
            }
            ("sandbox", Data::Text(text)) if executor == ExecutorKind::Wasm && text == "none" => {
                self.text.extend_from_slice(b"null")
            }
            _ => self.value(node, shape, path),
        }
    }

    fn merged(
        &mut self,
        own: &Node<'_>,
        inherited: &Node<'_>,
        shape: Shape,
        executor: ExecutorKind,
        path: FieldPath<'_>,
    ) {
        let (Data::Map(first), Data::Map(second)) = (&own.data, &inherited.data) else {
            return self.value(own, shape, path);
        };
        let is_limits = matches!(shape, Shape::Fields(_));
        let others = second.iter().filter(|entry| {
            !first.iter().any(|own| own.key == entry.key) && (!is_limits || limit_applies(executor, &entry.key))
        });
        self.entries(first.iter().chain(others), shape, path);
    }

    fn entries<'e, 'a: 'e>(
        &mut self,
        entries: impl Iterator<Item = &'e MapEntry<'a>>,
        shape: Shape,
        path: FieldPath<'_>,
    ) {
        self.text.push(b'{');
        let mut is_first = true;
        for entry in entries {
            let shape = match shape {
                Shape::Fields(fields) => match fields.iter().find(|(name, _)| *name == entry.key) {
                    Some((_, shape)) => *shape,
                    None => {
                        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
                        self.compiler.known_fields(std::slice::from_ref(entry), path, &names);
                        continue;
                    }
                },
                _ => Shape::Text,
            };
            if !is_first {
                self.text.push(b',');
            }
            is_first = false;
            self.text.extend_from_slice(serde_json::to_string(&entry.key).unwrap_or_default().as_bytes());
            self.text.push(b':');
            self.value(&entry.value, shape, path.field(&entry.key));
        }
        self.text.push(b'}');
    }
}

fn limit_applies(executor: ExecutorKind, limit: &str) -> bool {
    match executor {
        ExecutorKind::Echo => false,
        ExecutorKind::Process => limit != "fuel",
        ExecutorKind::Wasm => !matches!(limit, "pids" | "open_files"),
    }
}

/// Task results at compile time: none.
struct NoTasks;

impl Tasks for NoTasks {
    fn result(&self, _: u32) -> Cow<'_, Value> {
        Cow::Owned(Value::Null)
    }

    fn state(&self, _: u32) -> &'static str {
        ""
    }
}
