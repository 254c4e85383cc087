//! One definition: its own fields, and what they have to do with each other.

use std::cell::Cell;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::Compiler;
use super::edges::{Edges, Need};
use super::job::{DEFAULT_JOB_FIELDS, Defaults, JOB_FIELDS};
use super::shape::{Holes, Shape};
use super::task::Within;
use super::templates::{Known, Site};
use crate::diagnostic::{closest, code};
use crate::limits;
use crate::node::{Data, Entry, Node};
use crate::path::Path;
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

/// Definitions that tasks of another may start.
#[derive(Default)]
pub(super) struct Children<'n> {
    numbers: HashMap<&'n str, u32, RandomState>,
    names: Vec<&'n str>,
    /// Absent if something is wrong with it.
    pub plans: Vec<Option<Arc<Plan>>>,
}

impl Compiler {
    pub(super) fn root(&mut self, node: &Node<'_>) -> Option<Plan> {
        self.definition(node, Path::Root, &mut Vec::new())
    }

    /// `outer` are the names of the definitions around it.
    fn definition<'n>(&mut self, node: &'n Node<'_>, path: Path<'_>, outer: &mut Vec<&'n str>) -> Option<Plan> {
        let entries = self.map(node, path, "an object with `name` and `tasks`")?;
        self.known_fields(entries, path, &FIELDS);
        self.version(node, path);
        let name = match node.get("name") {
            Some(name) => self.name(name, path.field("name")),
            None => {
                let message = "what is the workflow called?";
                let suggestion = Some("begin with `name: my-workflow`".to_owned());
                self.problems.advise(node.place, code::MISSING_FIELD, path.field("name"), message, suggestion);
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
        let drafts = self.tasks(node, path, &inputs, &epochs, &children, outer);
        outer.pop();
        let (tasks, outputs) = drafts?;
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

    fn version(&mut self, node: &Node<'_>, path: Path<'_>) {
        if let Some(version) = node.get("version")
            && !matches!(&version.data, Data::Number(number) if number.as_u64() == Some(1))
        {
            let message = "this version of the language is not known: there is version 1";
            let suggestion = Some("write `version: 1`, or leave it out".to_owned());
            self.problems.advise(version.place, code::UNKNOWN_VERSION, path.field("version"), message, suggestion);
        }
    }

    fn epochs<'n>(&mut self, node: &'n Node<'_>, path: Path<'_>) -> Vec<&'n str> {
        let Data::List(nodes) = &node.data else {
            self.wrong_type(node, path, "a list of names");
            return Vec::new();
        };
        if nodes.len() > limits::EPOCHS_MAX {
            let message = format!("{} epochs are too many: at most {}", nodes.len(), limits::EPOCHS_MAX);
            self.problems.add(node.place, code::TOO_LARGE, path, message);
            return Vec::new();
        }
        let mut epochs: Vec<&str> = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let path = path.element(at);
            // Kept even if it is no good name, so that the tasks in it are not told as well.
            let Some(name) = self.text(node, path) else { continue };
            if self.valid_name(name, node.place, path) && epochs.contains(&name) {
                let message = format!("there is an epoch `{name}` already");
                self.problems.add(node.place, code::DUPLICATE_NAME, path, message);
            }
            epochs.push(name);
        }
        epochs
    }

    fn children<'n>(&mut self, node: &'n Node<'_>, path: Path<'_>, outer: &mut Vec<&'n str>) -> Children<'n> {
        let field = path.field("workflows");
        let Some(node) = node.get("workflows") else {
            return Children::default();
        };
        let Some(entries) = self.map(node, field, "an object of definitions") else {
            return Children::default();
        };
        if outer.len() >= limits::NESTING_MAX {
            let message = format!("definitions are nested deeper than {}", limits::NESTING_MAX);
            self.problems.add(node.place, code::TOO_LARGE, field, message);
            return Children::default();
        }
        let mut children = Children::default();
        for (number, entry) in (0u32..).zip(entries) {
            let path = path.definition(&entry.key);
            self.valid_name(&entry.key, entry.place, path);
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
        path: Path<'_>,
        inputs: &[crate::plan::Input],
        epochs: &[&str],
        children: &Children<'_>,
        outer: &[&str],
    ) -> Option<(Vec<Task>, Option<ValueTemplate>)> {
        let entries = self.task_entries(definition, path)?;
        let tasks: Vec<&str> = entries.iter().map(|entry| &*entry.key).collect();
        let numbers: HashMap<&str, u32, _> = (0u32..).zip(&tasks).map(|(at, name)| (*name, at)).collect();
        let suggestions_left = Cell::new(2 * limits::DIAGNOSTICS_MAX);
        let known = Known { inputs, tasks, numbers, suggestions_left };
        let (mut defaults, on_failure, timeout) = self.defaults(definition, path, &known);
        let mut edges = Edges::new(entries.len());
        let mut drafts: Vec<Option<Task>> = Vec::with_capacity(entries.len());
        for (number, entry) in (0u32..).zip(entries) {
            let within = Within { known: &known, epochs, children, outer, on_failure, timeout };
            let path = path.task(&entry.key);
            self.valid_name(&entry.key, entry.place, path);
            drafts.push(self.task(number, entry, &within, &mut defaults, &mut edges, path));
        }
        let mut site = Site::new(&known);
        let outputs = definition.get("outputs").map(|node| {
            let mut holes = Vec::new();
            let shift = -i64::from(node.span.0);
            let mut found = Holes { list: &mut holes, shift };
            self.shaped(node, Shape::Any, path.field("outputs"), &mut site, &mut found);
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

    fn task_entries<'n, 'a>(&mut self, definition: &'n Node<'a>, path: Path<'_>) -> Option<&'n [Entry<'a>]> {
        let Some(node) = definition.get("tasks") else {
            let message = "a workflow has at least one task";
            self.problems.add(definition.place, code::MISSING_FIELD, path.field("tasks"), message);
            return None;
        };
        let path = path.field("tasks");
        let entries = self.map(node, path, "an object of tasks, each under its name,")?;
        if entries.is_empty() {
            self.problems.add(node.place, code::MISSING_FIELD, path, "a workflow has at least one task");
            return None;
        }
        self.tasks += entries.len();
        if self.tasks > limits::TASKS_MAX {
            let message = format!("more than {} tasks are too many for one workflow", limits::TASKS_MAX);
            self.problems.add(node.place, code::TOO_LARGE, path, message);
            return None;
        }
        Some(entries)
    }

    /// What holds for all tasks that do not say otherwise.
    fn defaults<'n, 'a>(
        &mut self,
        definition: &'n Node<'a>,
        path: Path<'_>,
        known: &Known<'_>,
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
        let names: Vec<&str> = job_fields.iter().map(|(name, _)| *name).chain(others).collect();
        self.known_fields(entries, path, &names);
        defaults.tries = self.default_tries(entries, path);
        let mut timeout = None;
        for entry in entries {
            let field = path.field(&entry.key);
            match &*entry.key {
                "on_failure" => {
                    on_failure = self.one_of(&entry.value, field, &ON_FAILURE);
                    if outer.is_some() {
                        let message = "it is said twice: leave out one of `on_failure` and `defaults.on_failure`";
                        self.problems.add(entry.place, code::CONFLICT, field, message);
                    }
                }
                "timeout" => timeout = self.timeout(&entry.value, field),
                name => {
                    if let Some((_, shape)) = job_fields.iter().find(|(known, _)| *known == name)
                        && self.is_good_default(&entry.value, *shape, field, known)
                    {
                        defaults.fields.push(entry);
                    }
                }
            }
        }
        (defaults, on_failure.unwrap_or_default(), timeout)
    }

    fn is_good_default(&mut self, node: &Node<'_>, shape: Shape, path: Path<'_>, known: &Known<'_>) -> bool {
        if let Data::Map(entries) = &node.data
            && entries.len() > model::limits::LABELS_MAX
        {
            let message = format!("{} fields are too many: at most {}", entries.len(), model::limits::LABELS_MAX);
            self.problems.add(node.place, code::TOO_LARGE, path, message);
            return false;
        }
        let mut site = Site::new(known);
        let mut holes = Vec::new();
        let good = self.shaped(node, shape, path, &mut site, &mut Holes { list: &mut holes, shift: 0 });
        if !site.references.is_empty() {
            let message = "a default cannot refer to a task: all tasks would have to wait for it";
            self.problems.add(node.place, code::INVALID_TEMPLATE, path, message);
            return false;
        }
        good
    }

    /// The place of a child, by the name that a task gives.
    pub(super) fn child(&mut self, node: &Node<'_>, path: Path<'_>, within: &Within<'_>) -> Option<u32> {
        let name = self.text(node, path)?;
        if let Some(number) = within.children.numbers.get(name) {
            return Some(*number);
        }
        if within.outer.contains(&name) {
            let message = format!("`{name}` would start itself: there is no recursion");
            self.problems.add(node.place, code::RECURSION, path, message);
            return None;
        }
        let names = if self.problems.are_many() { &[] } else { &within.children.names[..] };
        let near = closest(name, names.iter().copied());
        let suggestion = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("define it under `workflows: {{{name}: …}}` of the same definition"),
        };
        let message = format!("there is no workflow `{name}` in this definition");
        self.problems.advise(node.place, code::UNKNOWN_WORKFLOW, path, message, Some(suggestion));
        None
    }

    pub(super) fn needs(
        &mut self,
        node: &Node<'_>,
        number: u32,
        within: &Within<'_>,
        edges: &mut Edges,
        path: Path<'_>,
    ) {
        let is_list = matches!(node.data, Data::List(_));
        for (at, (name, node)) in self.texts(node, path, "a task, or a list of tasks,").into_iter().enumerate() {
            let path = if is_list { path.element(at) } else { path };
            match within.known.task(name) {
                Ok(needed) => edges.add(Need { task: number, needed, place: node.place }),
                Err(wrong) => self.wrong(node, path, wrong),
            }
        }
    }
}
