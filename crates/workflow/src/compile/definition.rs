//! Compiles one definition: its own fields and its tasks.

use std::cell::Cell;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::Compiler;
use super::edges::{Edges, Need};
use super::job::{DEFAULT_JOB_FIELDS, Defaults, JOB_FIELDS};
use super::shape::{Holes, Shape};
use super::task::TaskContext;
use super::templates::{DefinitionNames, TemplateSite};
use crate::diagnostic::{closest, code};
use crate::limits;
use crate::node::{Data, MapEntry, Node};
use crate::path::FieldPath;
use crate::plan::{OnFailure, Plan, Task};
use crate::slice::Slice;
use crate::template::ValueTemplate;

const FIELDS: [&str; 11] = [
    "version",
    "name",
    "description",
    "inputs",
    "defaults",
    "timeout",
    "on_failure",
    "epochs",
    "outputs",
    "workflows",
    "tasks",
];
pub(super) const ON_FAILURE: [(&str, OnFailure); 3] =
    [("fail", OnFailure::Fail), ("continue", OnFailure::Continue), ("compensate", OnFailure::Compensate)];

/// Nested definitions, which tasks start as sub-workflows.
#[derive(Default)]
pub(super) struct Children<'n> {
    numbers: HashMap<&'n str, u32, RandomState>,
    names: Vec<&'n str>,
    /// `None` for an invalid definition.
    pub plans: Vec<Option<Arc<Plan>>>,
}

impl Compiler {
    pub(super) fn root(&mut self, node: &Node<'_>) -> Option<Plan> {
        self.definition(node, FieldPath::Root, &mut Vec::new())
    }

    /// `outer` are the names of the enclosing definitions.
    fn definition<'n>(&mut self, node: &'n Node<'_>, path: FieldPath<'_>, outer: &mut Vec<&'n str>) -> Option<Plan> {
        let entries = self.map(node, path, "an object with `name` and `tasks`")?;
        self.known_fields(entries, path, &FIELDS);
        self.version(node, path);
        let name = match node.get("name") {
            Some(name) => self.name(name, path.field("name")),
            None => {
                let message = "a workflow needs a name";
                let suggestion = Some("start with `name: my-workflow`".to_owned());
                self.problems.add_with_suggestion(
                    node.position,
                    code::MISSING_FIELD,
                    path.field("name"),
                    message,
                    suggestion,
                );
                None
            }
        };
        if let Some(description) = node.get("description") {
            self.description(description, path.field("description"));
        }
        let inputs = node.get("inputs").map(|node| self.inputs(node, path.field("inputs"))).unwrap_or_default();
        let timeout = node.get("timeout").and_then(|node| self.timeout(node, path.field("timeout")));
        let epochs = node.get("epochs").map(|node| self.epochs(node, path.field("epochs"))).unwrap_or_default();
        outer.push(name.unwrap_or_default());
        let children = self.children(node, path, outer);
        let compiled = self.tasks(node, path, &inputs, &epochs, &children, outer);
        outer.pop();
        let (tasks, outputs) = compiled?;
        let (source, digest) = self.source_of(node);
        Some(Plan {
            name: name?.into(),
            source,
            digest,
            inputs,
            tasks,
            epochs: epochs.into_iter().map(Box::from).collect(),
            outputs,
            timeout,
            children: children.plans.into_iter().flatten().collect(),
        })
    }

    fn version(&mut self, node: &Node<'_>, path: FieldPath<'_>) {
        if let Some(version) = node.get("version")
            && !matches!(&version.data, Data::Number(number) if number.as_u64() == Some(1))
        {
            let message = "unknown version of the language: the only version is 1";
            let suggestion = Some("write `version: 1`, or remove the field".to_owned());
            self.problems.add_with_suggestion(
                version.position,
                code::UNKNOWN_VERSION,
                path.field("version"),
                message,
                suggestion,
            );
        }
    }

    fn epochs<'n>(&mut self, node: &'n Node<'_>, path: FieldPath<'_>) -> Vec<&'n str> {
        let Data::List(nodes) = &node.data else {
            self.wrong_type(node, path, "a list of names");
            return Vec::new();
        };
        if nodes.len() > limits::EPOCHS_MAX {
            let message = format!("{} epochs: at most {} are allowed", nodes.len(), limits::EPOCHS_MAX);
            self.problems.add(node.position, code::TOO_LARGE, path, message);
            return Vec::new();
        }
        let mut epochs: Vec<&str> = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let path = path.element(at);
            // Invalid names are kept, so that tasks in the epoch do not produce a second diagnostic.
            let Some(name) = self.text(node, path) else { continue };
            if self.valid_name(name, node.position, path) && epochs.contains(&name) {
                let message = format!("the epoch `{name}` is listed twice");
                self.problems.add(node.position, code::DUPLICATE_NAME, path, message);
            }
            epochs.push(name);
        }
        epochs
    }

    fn children<'n>(&mut self, node: &'n Node<'_>, path: FieldPath<'_>, outer: &mut Vec<&'n str>) -> Children<'n> {
        let field = path.field("workflows");
        let Some(node) = node.get("workflows") else {
            return Children::default();
        };
        let Some(entries) = self.map(node, field, "an object of definitions") else {
            return Children::default();
        };
        if outer.len() >= limits::NESTING_MAX {
            let message = format!("definitions are nested more than {} levels deep", limits::NESTING_MAX);
            self.problems.add(node.position, code::TOO_LARGE, field, message);
            return Children::default();
        }
        let mut children = Children::default();
        for (number, entry) in (0u32..).zip(entries) {
            let path = path.definition(&entry.key);
            self.valid_name(&entry.key, entry.position, path);
            let plan = self.definition(&entry.value, path, outer).map(Arc::new);
            children.numbers.insert(&entry.key, number);
            children.names.push(&entry.key);
            children.plans.push(plan);
        }
        children
    }

    fn tasks(
        &mut self,
        definition: &Node<'_>,
        path: FieldPath<'_>,
        inputs: &[crate::plan::Input],
        epochs: &[&str],
        children: &Children<'_>,
        outer: &[&str],
    ) -> Option<(Vec<Task>, Option<ValueTemplate>)> {
        let entries = self.task_entries(definition, path)?;
        let tasks: Vec<&str> = entries.iter().map(|entry| &*entry.key).collect();
        let numbers: HashMap<&str, u32, _> = (0u32..).zip(&tasks).map(|(at, name)| (*name, at)).collect();
        let suggestions_left = Cell::new(2 * limits::DIAGNOSTICS_MAX);
        let names = DefinitionNames { inputs, tasks, numbers, suggestions_left };
        let (mut defaults, on_failure, timeout) = self.defaults(definition, path, &names);
        let mut edges = Edges::new(entries.len());
        let mut drafts: Vec<Option<Task>> = Vec::with_capacity(entries.len());
        for (number, entry) in (0u32..).zip(entries) {
            let context = TaskContext { names: &names, epochs, children, outer, on_failure, timeout };
            let path = path.task(&entry.key);
            self.valid_name(&entry.key, entry.position, path);
            drafts.push(self.task(number, entry, &context, &mut defaults, &mut edges, path));
        }
        let mut site = TemplateSite::new(&names);
        let outputs = definition.get("outputs").map(|node| {
            let mut holes = Vec::new();
            let shift = -i64::from(node.span.0);
            let mut found = Holes { list: &mut holes, shift };
            self.check_shape(node, Shape::Any, path.field("outputs"), &mut site, &mut found);
            ValueTemplate::new(Slice::new(&self.source, node.span), holes)
        });
        for (task, is_result) in site.references {
            if is_result {
                edges.reads.push(task);
            }
        }
        if !self.check_edges(&mut edges, entries, epochs, path) {
            return None;
        }
        let mut tasks = drafts.into_iter().collect::<Option<Vec<Task>>>()?;
        edges.install(&mut tasks);
        Some((tasks, outputs))
    }

    fn task_entries<'n, 'a>(&mut self, definition: &'n Node<'a>, path: FieldPath<'_>) -> Option<&'n [MapEntry<'a>]> {
        let Some(node) = definition.get("tasks") else {
            let message = "a workflow needs at least one task";
            self.problems.add(definition.position, code::MISSING_FIELD, path.field("tasks"), message);
            return None;
        };
        let path = path.field("tasks");
        let entries = self.map(node, path, "an object of tasks by name")?;
        if entries.is_empty() {
            self.problems.add(node.position, code::MISSING_FIELD, path, "a workflow needs at least one task");
            return None;
        }
        self.tasks += entries.len();
        if self.tasks > limits::TASKS_MAX {
            let message = format!("a workflow can have at most {} tasks", limits::TASKS_MAX);
            self.problems.add(node.position, code::TOO_LARGE, path, message);
            return None;
        }
        Some(entries)
    }

    /// Defaults of all tasks of the definition.
    fn defaults<'n, 'a>(
        &mut self,
        definition: &'n Node<'a>,
        path: FieldPath<'_>,
        names: &DefinitionNames<'_>,
    ) -> (Defaults<'n, 'a>, OnFailure, Option<model::time::Millis>) {
        let mut defaults = Defaults::default();
        let outer = definition.get("on_failure");
        let mut on_failure = outer.and_then(|node| self.one_of(node, path.field("on_failure"), &ON_FAILURE));
        let Some(node) = definition.get("defaults") else {
            return (defaults, on_failure.unwrap_or_default(), None);
        };
        let path = path.field("defaults");
        let Some(entries) = self.map(node, path, "an object") else {
            return (defaults, on_failure.unwrap_or_default(), None);
        };
        let job_fields = &JOB_FIELDS[..DEFAULT_JOB_FIELDS];
        let others = ["retry", "timeout", "attempt_timeout", "on_failure"];
        let known: Vec<&str> = job_fields.iter().map(|(name, _)| *name).chain(others).collect();
        self.known_fields(entries, path, &known);
        defaults.attempt_limits = self.default_attempt_limits(entries, path);
        let mut timeout = None;
        for entry in entries {
            let field = path.field(&entry.key);
            match &*entry.key {
                "on_failure" => {
                    on_failure = self.one_of(&entry.value, field, &ON_FAILURE);
                    if outer.is_some() {
                        let message = "`on_failure` is set twice: remove either `on_failure` or `defaults.on_failure`";
                        self.problems.add(entry.position, code::CONFLICT, field, message);
                    }
                }
                "timeout" => timeout = self.timeout(&entry.value, field),
                name => {
                    if let Some((_, shape)) = job_fields.iter().find(|(known, _)| *known == name)
                        && self.is_good_default(&entry.value, *shape, field, names)
                    {
                        defaults.fields.push(entry);
                    }
                }
            }
        }
        (defaults, on_failure.unwrap_or_default(), timeout)
    }

    fn is_good_default(
        &mut self,
        node: &Node<'_>,
        shape: Shape,
        path: FieldPath<'_>,
        names: &DefinitionNames<'_>,
    ) -> bool {
        if let Data::Map(entries) = &node.data
            && entries.len() > model::limits::LABELS_MAX
        {
            let message = format!("{} fields: at most {} are allowed", entries.len(), model::limits::LABELS_MAX);
            self.problems.add(node.position, code::TOO_LARGE, path, message);
            return false;
        }
        let mut site = TemplateSite::new(names);
        let mut holes = Vec::new();
        let good = self.check_shape(node, shape, path, &mut site, &mut Holes { list: &mut holes, shift: 0 });
        if !site.references.is_empty() {
            let message = "a default cannot refer to a task: all other tasks would need it";
            self.problems.add(node.position, code::INVALID_TEMPLATE, path, message);
            return false;
        }
        good
    }

    /// Index of the nested definition that a task names.
    pub(super) fn child(&mut self, node: &Node<'_>, path: FieldPath<'_>, context: &TaskContext<'_>) -> Option<u32> {
        let name = self.text(node, path)?;
        if let Some(number) = context.children.numbers.get(name) {
            return Some(*number);
        }
        if context.outer.contains(&name) {
            let message = format!("`{name}` would start itself: recursion is not supported");
            self.problems.add(node.position, code::RECURSION, path, message);
            return None;
        }
        let names = if self.problems.skip_suggestions() { &[] } else { &context.children.names[..] };
        let near = closest(name, names.iter().copied());
        let suggestion = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("define it under `workflows: {{{name}: …}}` in the same definition"),
        };
        let message = format!("there is no workflow `{name}` in this definition");
        self.problems.add_with_suggestion(node.position, code::UNKNOWN_WORKFLOW, path, message, Some(suggestion));
        None
    }

    pub(super) fn needs(
        &mut self,
        node: &Node<'_>,
        number: u32,
        context: &TaskContext<'_>,
        edges: &mut Edges,
        path: FieldPath<'_>,
    ) {
        let is_list = matches!(node.data, Data::List(_));
        for (at, (name, node)) in self.texts(node, path, "a task or a list of tasks").into_iter().enumerate() {
            let path = if is_list { path.element(at) } else { path };
            match context.names.task(name) {
                Ok(needed) => edges.add(Need { task: number, needed, position: node.position }),
                Err(error) => self.report(node, path, error),
            }
        }
    }
}
