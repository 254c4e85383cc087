//! What a task or a compensation says of its job, together with the defaults of its definition.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use model::spec::Lane;
use serde_json::Value;

use super::Compiler;
use super::shape::{ECHO, Holes, LIMITS, PROCESS, Shape, WASM};
use super::templates::Site;
use crate::diagnostic::code;
use crate::job::{Fields, Given, JobTemplate, Rest};
use crate::node::{Data, Entry, Node};
use crate::path::Path;
use crate::scope::{JobFacts, RenderError, Scope, Tasks};
use crate::slice::Slice;
use crate::template::{Hole, ValueTemplate, parse_rendered};

/// What is said of a job besides what it runs.
pub(super) const JOB_FIELDS: [(&str, Shape); 8] = [
    ("topic", Shape::Text),
    ("priority", Shape::Word(&["critical", "interactive", "batch"])),
    ("requires", Shape::Texts),
    ("labels", Shape::TextMap),
    ("sandbox", Shape::Word(&["strict", "standard", "none"])),
    ("limits", LIMITS),
    ("inputs", Shape::TextMap),
    ("outputs", Shape::Texts),
];
/// Of these, what can be a default of all tasks: files belong to one job.
pub(super) const DEFAULT_JOB_FIELDS: usize = 6;

/// How a job gets retried and how long an attempt may take. Constants, because the engine asks for them beforehand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Tries {
    pub max_retries: Option<u32>,
    pub timeout_ms: Option<u64>,
}

/// Defaults of one definition, and the fields of jobs that were met in it.
#[derive(Default)]
pub(super) struct Defaults<'n, 'a> {
    pub fields: Vec<&'n Entry<'a>>,
    pub tries: Tries,
    /// By their text: what looks alike is kept once.
    shared: HashMap<(Vec<u8>, Tries), Arc<Fields>, foldhash::fast::RandomState>,
}

impl Compiler {
    /// A task's or compensation's job. `entries` are all its fields.
    pub(super) fn job<'n, 'a>(
        &mut self,
        entries: &'n [Entry<'a>],
        run: &Node<'_>,
        defaults: &mut Defaults<'n, 'a>,
        path: Path<'_>,
        site: &mut Site<'_>,
    ) -> Option<JobTemplate> {
        let before = self.problems.count();
        let lane = self.lane(run, path.field("run"));
        let tries = self.tries(entries, path, defaults.tries);
        let mut holes = Vec::new();
        let mut fields = None;
        if let Some((lane, node)) = lane {
            let shift = -i64::from(run.span.0);
            let shape = match lane {
                Lane::Process => PROCESS,
                Lane::Echo => ECHO,
                Lane::Wasm => WASM,
            };
            let path_of_run = path.field("run");
            let mut found = Holes { list: &mut holes, shift };
            self.shaped(node, shape, path_of_run.field(lane.as_str()), site, &mut found);
            fields = self.job_fields(entries, lane, tries, defaults, path, site);
        }
        if self.problems.count() > before {
            return None;
        }
        let run_template = ValueTemplate::new(Slice::new(&self.source, run.span), holes);
        let template = JobTemplate::new(run_template, fields);
        self.try_constant(&template, run, path, site);
        Some(template)
    }

    /// What kind of job it is, and what is said of that.
    fn lane<'n, 'a>(&mut self, run: &'n Node<'a>, path: Path<'_>) -> Option<(Lane, &'n Node<'a>)> {
        let entries = self.map(run, path, "a command, or an object with `process`, `echo` or `wasm`,")?;
        self.known_fields(entries, path, &["process", "echo", "wasm"]);
        let [only] = entries else {
            let message = "exactly one of `process`, `echo` and `wasm` is needed";
            self.problems.add(run.place, code::CONFLICT, path, message);
            return None;
        };
        let lane = Lane::ALL.into_iter().find(|lane| lane.as_str() == only.key)?;
        if lane == Lane::Wasm && only.value.get("component").is_none() {
            let message = "which component? Name its blob";
            self.problems.add(only.place, code::MISSING_FIELD, path.field("wasm").field("component"), message);
        }
        self.map(&only.value, path.field(&only.key), "an object")?;
        Some((lane, &only.value))
    }

    fn tries(&mut self, entries: &[Entry<'_>], path: Path<'_>, defaults: Tries) -> Tries {
        let mut tries = defaults;
        for entry in entries {
            let path = path.field(&entry.key);
            match &*entry.key {
                "retry" => tries.max_retries = self.retry(&entry.value, path),
                "attempt_timeout" => tries.timeout_ms = self.timeout(&entry.value, path).map(|timeout| timeout.0),
                _ => {}
            }
        }
        tries
    }

    /// `retry: 3`, or `retry: {limit: 3}`.
    fn retry(&mut self, node: &Node<'_>, path: Path<'_>) -> Option<u32> {
        let most = model::limits::RETRIES_MAX;
        let Data::Map(entries) = &node.data else {
            return self.number(node, path, 0, most);
        };
        self.known_fields(entries, path, &["limit"]);
        match node.get("limit") {
            Some(limit) => self.number(limit, path.field("limit"), 0, most),
            None => {
                self.problems.add(node.place, code::MISSING_FIELD, path.field("limit"), "how often?");
                None
            }
        }
    }

    pub(super) fn default_tries(&mut self, entries: &[Entry<'_>], path: Path<'_>) -> Tries {
        self.tries(entries, path, Tries::default())
    }

    /// Fields of the task before those of the defaults; labels and limits field by field.
    fn job_fields<'n, 'a>(
        &mut self,
        entries: &'n [Entry<'a>],
        lane: Lane,
        tries: Tries,
        defaults: &mut Defaults<'n, 'a>,
        path: Path<'_>,
        site: &mut Site<'_>,
    ) -> Option<Arc<Fields>> {
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
            let mut writer = Writer { compiler: self, text: &mut text, holes: &mut holes, site: &mut *site };
            match (own, inherited) {
                (Some(own), Some(inherited)) if matches!(name, "labels" | "limits") => {
                    writer.merged(own, inherited, shape, lane, field);
                }
                (Some(own), _) => writer.value(own, shape, field),
                (None, Some(inherited)) => writer.inherited(inherited, name, shape, lane, field),
                (None, None) => {}
            }
        }
        if text.is_empty() && tries == Tries::default() || self.problems.count() > before {
            return None;
        }
        text.extend_from_slice(if text.is_empty() { b"{}" } else { b"}" });
        self.shared_fields(text, holes, tries, defaults, path, entries)
    }

    fn shared_fields(
        &mut self,
        text: Vec<u8>,
        holes: Vec<Hole>,
        tries: Tries,
        defaults: &mut Defaults<'_, '_>,
        path: Path<'_>,
        entries: &[Entry<'_>],
    ) -> Option<Arc<Fields>> {
        let key = (text, tries);
        if let Some(shared) = defaults.shared.get(&key) {
            return Some(Arc::clone(shared));
        }
        let rest = if holes.is_empty() {
            match parse_rendered::<Given>("", &key.0) {
                Ok(given) => Rest::Constant(Box::new(given)),
                Err(error) => {
                    self.refused(entries, path, &error);
                    return None;
                }
            }
        } else {
            let end = u32::try_from(key.0.len()).unwrap_or(u32::MAX);
            let own = Arc::new(Bytes::from(key.0.clone()));
            Rest::Template(ValueTemplate::new(Slice::new(&own, (0, end)), holes))
        };
        let fields = Arc::new(Fields { max_retries: tries.max_retries, timeout_ms: tries.timeout_ms, rest });
        defaults.shared.insert(key, Arc::clone(&fields));
        Some(fields)
    }

    /// A job without templates is tried out now: what a spec does not allow is told here and not when it runs.
    fn try_constant(&mut self, template: &JobTemplate, run: &Node<'_>, path: Path<'_>, site: &Site<'_>) {
        if !template.is_constant() {
            return;
        }
        let scope = Scope {
            inputs: &Value::Null,
            tasks: &Nothing,
            item: None,
            workflow: model::id::WorkflowId(0),
            name: "",
            schedule: None,
            result: None,
        };
        let facts = JobFacts {
            workflow: model::id::WorkflowId(0),
            task: "",
            item: site.has_item.then_some(0),
            run: 0,
            tenant: "default",
            // Only there is a `result`.
            compensation: site.has_result,
        };
        if let Err(error) = template.render(&scope, &facts) {
            let field = error.field.as_str();
            let place = place_of(run, field).unwrap_or(run.place);
            self.problems.add(place, code::INVALID_VALUE, format!("{path}.{field}"), error.message);
        }
    }

    fn refused(&mut self, entries: &[Entry<'_>], path: Path<'_>, error: &RenderError) {
        let first = error.field.split(['.', '[']).next().unwrap_or_default();
        let place = entries
            .iter()
            .find(|entry| entry.key == first)
            .map_or_else(|| entries.first().map(|entry| entry.place).unwrap_or_default(), |entry| entry.value.place);
        self.problems.add(place, code::INVALID_VALUE, format!("{path}.{}", error.field), error.message.clone());
    }
}

/// The place of `run.process.command` within `run`.
fn place_of(run: &Node<'_>, field: &str) -> Option<crate::diagnostic::Place> {
    let mut node = run;
    for name in field.strip_prefix("run.")?.split('.') {
        node = node.get(name)?;
    }
    Some(node.place)
}

/// Writes the fields of a job as one object of their own.
struct Writer<'w, 's> {
    compiler: &'w mut Compiler,
    text: &'w mut Vec<u8>,
    holes: &'w mut Vec<Hole>,
    site: &'w mut Site<'s>,
}

impl Writer<'_, '_> {
    fn value(&mut self, node: &Node<'_>, shape: Shape, path: Path<'_>) {
        let start = self.text.len();
        let shift = start as i64 - i64::from(node.span.0);
        let mut holes = Holes { list: self.holes, shift };
        self.compiler.shaped(node, shape, path, self.site, &mut holes);
        let source = Arc::clone(&self.compiler.source);
        self.text.extend_from_slice(&source[node.span.0 as usize..node.span.1 as usize]);
    }

    /// A default that makes no sense for this kind of job is left out, so that one default can serve different jobs.
    fn inherited(&mut self, node: &Node<'_>, name: &str, shape: Shape, lane: Lane, path: Path<'_>) {
        match (name, &node.data) {
            ("limits", Data::Map(entries)) => {
                self.entries(entries.iter().filter(|entry| limits_fit(lane, &entry.key)), shape, path)
            }
            ("sandbox", Data::Text(text)) if lane == Lane::Wasm && text == "none" => {
                self.text.extend_from_slice(b"null")
            }
            _ => self.value(node, shape, path),
        }
    }

    fn merged(&mut self, own: &Node<'_>, inherited: &Node<'_>, shape: Shape, lane: Lane, path: Path<'_>) {
        let (Data::Map(first), Data::Map(second)) = (&own.data, &inherited.data) else {
            return self.value(own, shape, path);
        };
        let is_limits = matches!(shape, Shape::Fields(_));
        let others = second.iter().filter(|entry| {
            !first.iter().any(|own| own.key == entry.key) && (!is_limits || limits_fit(lane, &entry.key))
        });
        self.entries(first.iter().chain(others), shape, path);
    }

    fn entries<'e, 'a: 'e>(&mut self, entries: impl Iterator<Item = &'e Entry<'a>>, shape: Shape, path: Path<'_>) {
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

fn limits_fit(lane: Lane, limit: &str) -> bool {
    match lane {
        Lane::Echo => false,
        Lane::Process => limit != "fuel",
        Lane::Wasm => !matches!(limit, "pids" | "open_files"),
    }
}

/// There are no tasks yet.
struct Nothing;

impl Tasks for Nothing {
    fn result(&self, _: u32) -> Cow<'_, Value> {
        Cow::Owned(Value::Null)
    }

    fn state(&self, _: u32) -> &'static str {
        ""
    }
}
