//! Compiles one task.

use model::time::Millis;

use super::Compiler;
use super::definition::{Children, ON_FAILURE};
use super::edges::{Edges, Need};
use super::job::Defaults;
use super::shape::{Holes, Shape};
use super::templates::{DefinitionNames, TemplateSite};
use crate::diagnostic::{Position, closest, code};
use crate::expression::Type;
use crate::node::{Data, MapEntry, Node};
use crate::path::FieldPath;
use crate::plan::{ForEach, OnFailure, Task};
use crate::slice::Slice;
use crate::template::{ValueTemplate, has_templates};

/// Fields of a task, except `outputs`. The first [`KINDS`] are the kinds of work; a task has exactly one of them.
const FIELDS: [&str; 26] = [
    "run",
    "workflow",
    "delay",
    "approval",
    "wait_for",
    "switch",
    "needs",
    "when",
    "for_each",
    "concurrency",
    "timeout",
    "on_failure",
    "epoch",
    "with",
    "compensation",
    "merge",
    "retry",
    "attempt_timeout",
    "topic",
    "priority",
    "requires",
    "labels",
    "sandbox",
    "limits",
    "exclusive",
    "inputs",
];
const KINDS: usize = 6;
/// Fields of the job, allowed only together with `run`.
const JOB_ONLY: [&str; 12] = [
    "merge",
    "retry",
    "attempt_timeout",
    "topic",
    "priority",
    "requires",
    "labels",
    "sandbox",
    "limits",
    "exclusive",
    "inputs",
    "outputs",
];

/// Context of a task in its definition.
pub(super) struct TaskContext<'a> {
    pub names: &'a DefinitionNames<'a>,
    pub epochs: &'a [&'a str],
    pub children: &'a Children<'a>,
    /// Names of the enclosing definitions, innermost last.
    pub outer: &'a [&'a str],
    pub on_failure: OnFailure,
    pub timeout: Option<Millis>,
}

impl Compiler {
    /// Compiles a task without its needs, which are collected in `edges`.
    pub(super) fn task<'n, 'a>(
        &mut self,
        number: u32,
        entry: &'n MapEntry<'a>,
        context: &TaskContext<'_>,
        defaults: &mut Defaults<'n, 'a>,
        edges: &mut Edges,
        path: FieldPath<'_>,
    ) -> Option<Task> {
        let node = &entry.value;
        let entries = self.map(node, path, "an object such as `{run: …}`")?;
        self.known_task_fields(entries, path);
        let before = self.problems.count();
        let kind = self.kind(entry, entries, path);
        let epoch = self.epoch(entry, context, path);
        edges.epochs[number as usize] = epoch;
        if let Some(needs) = node.get("needs") {
            self.needs(needs, number, context, edges, path.field("needs"));
        }
        // `when` and `for_each` apply to the task as a whole, so they have no item.
        let mut site = TemplateSite::new(context.names);
        let when = node.get("when").and_then(|node| self.condition(node, path.field("when"), &mut site));
        let for_each = node.get("for_each").and_then(|node| self.for_each(node, path.field("for_each"), &mut site));
        let concurrency = self.concurrency(node, path);
        site.has_item = node.get("for_each").is_some();
        let work = kind.and_then(|kind| self.work(kind, number, entries, context, defaults, edges, path, &mut site));
        let merge = node.get("merge").and_then(|node| self.text_template(node, path.field("merge"), &mut site));
        let on_failure =
            node.get("on_failure").and_then(|node| self.one_of(node, path.field("on_failure"), &ON_FAILURE));
        let timeout = node.get("timeout").and_then(|node| self.timeout(node, path.field("timeout")));
        self.take_references(number, entry.position, site, edges);
        let compensation = node.get("compensation").and_then(|compensation| {
            let mut site = TemplateSite::new(context.names);
            site.has_item = node.get("for_each").is_some();
            site.has_result = true;
            let job = self.compensation(compensation, defaults, path.field("compensation"), &mut site);
            // References of a compensation are no needs, but they read results.
            edges.reads.extend(site.references.iter().filter(|(_, is_result)| *is_result).map(|(task, _)| *task));
            if site.reads_own_result {
                edges.reads.push(number);
            }
            job.map(Box::new)
        });
        if self.problems.count() > before {
            return None;
        }
        Some(Task {
            name: (&*entry.key).into(),
            needs: Box::default(),
            dependents: Box::default(),
            epoch,
            when,
            for_each: for_each.map(|items| Box::new(ForEach { items, concurrency })),
            work: work?,
            merge,
            on_failure: on_failure.unwrap_or(context.on_failure),
            timeout: timeout.or(context.timeout),
            compensation,
            is_read: false,
        })
    }

    fn known_task_fields(&mut self, entries: &[MapEntry<'_>], path: FieldPath<'_>) {
        let unknown = |entry: &MapEntry<'_>| !FIELDS.contains(&&*entry.key) && entry.key != "outputs";
        for entry in entries.iter().filter(|entry| unknown(entry)) {
            let known = FIELDS.into_iter().chain(["outputs"]).filter(|_| !self.problems.skip_suggestions());
            let near = closest(&entry.key, known);
            let suggestion = match (&*entry.key, near) {
                ("depends_on" | "dependencies" | "after", _) => Some("did you mean `needs`?".to_owned()),
                ("if" | "condition", _) => Some("did you mean `when`?".to_owned()),
                ("command" | "process" | "script" | "echo" | "wasm", _) => {
                    Some(format!("did you mean `run: {{{}: …}}`?", run_kind(&entry.key)))
                }
                (_, near) => near.map(|near| format!("did you mean `{near}`?")),
            };
            let message = "unknown field";
            self.problems.add_with_suggestion(
                entry.position,
                code::UNKNOWN_FIELD,
                path.field(&entry.key),
                message,
                suggestion,
            );
        }
    }

    /// Kind of work. Reports fields that do not apply to it.
    fn kind<'n>(&mut self, task: &MapEntry<'_>, entries: &'n [MapEntry<'_>], path: FieldPath<'_>) -> Option<&'n str> {
        let kinds: Vec<&MapEntry<'_>> = entries.iter().filter(|entry| FIELDS[..KINDS].contains(&&*entry.key)).collect();
        let kind = match kinds[..] {
            [kind] => &*kind.key,
            [] => {
                let message =
                    "the task has no work: one of run, workflow, delay, approval, wait_for and switch is required";
                self.problems.add(task.position, code::MISSING_FIELD, path, message);
                return None;
            }
            // Reported as a duplicate field already.
            [first, second] if first.key == second.key => &*first.key,
            [first, second, ..] => {
                let message =
                    format!("a task has exactly one kind of work: remove `{}` or `{}`", first.key, second.key);
                self.problems.add(second.position, code::CONFLICT, path, message);
                return None;
            }
        };
        for entry in entries {
            let field = path.field(&entry.key);
            let refusal = match &*entry.key {
                name if JOB_ONLY.contains(&name) && kind != "run" => "only a task with `run` can have this field",
                "with" if kind != "workflow" => "only a task with `workflow` can have this field",
                "compensation" if !matches!(kind, "run" | "workflow") => {
                    "only a task with `run` or `workflow` can have a compensation"
                }
                "for_each" if kind == "switch" => "a switch cannot have `for_each`",
                _ => continue,
            };
            self.problems.add(entry.position, code::CONFLICT, field, refusal);
        }
        Some(kind)
    }

    fn epoch(&mut self, entry: &MapEntry<'_>, context: &TaskContext<'_>, path: FieldPath<'_>) -> u32 {
        let field = path.field("epoch");
        match (entry.value.get("epoch"), context.epochs) {
            (None, []) => 0,
            (None, epochs) => {
                let message = "the workflow has epochs, so each task must name one";
                let suggestion = Some(format!("one of: {}", list_names(epochs)));
                self.problems.add_with_suggestion(entry.position, code::MISSING_FIELD, field, message, suggestion);
                0
            }
            (Some(node), epochs) => {
                let Some(name) = self.text(node, field) else { return 0 };
                if let Some(at) = epochs.iter().position(|epoch| *epoch == name) {
                    return u32::try_from(at).unwrap_or(u32::MAX);
                }
                let message = format!("there is no epoch `{name}`");
                let suggestion = match (closest(name, epochs.iter().copied()), epochs) {
                    (Some(near), _) => format!("did you mean `{near}`?"),
                    (None, []) => "list the epochs in order first: `epochs: [first, second]`".to_owned(),
                    (None, epochs) => format!("one of: {}", list_names(epochs)),
                };
                self.problems.add_with_suggestion(node.position, code::UNKNOWN_EPOCH, field, message, Some(suggestion));
                0
            }
        }
    }

    /// A list, or a template that evaluates to one.
    fn for_each(&mut self, node: &Node<'_>, path: FieldPath<'_>, site: &mut TemplateSite<'_>) -> Option<ValueTemplate> {
        let mut holes = Vec::new();
        match &node.data {
            Data::List(elements) => {
                if elements.len() > crate::limits::ITEMS_MAX {
                    let message = format!("{} items: at most {} are allowed", elements.len(), crate::limits::ITEMS_MAX);
                    self.problems.add(node.position, code::TOO_LARGE, path, message);
                    return None;
                }
            }
            Data::Text(text) if has_templates(text) => {
                let (_, kind) = self.template(node, text, path, &mut TemplateSite::without_references(site))?;
                if !kind.may_be(Type::List) {
                    let message = format!("expected a list, but the template evaluates to {}", kind.describe());
                    self.problems.add(node.position, code::WRONG_TYPE, path, message);
                    return None;
                }
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::Map(_) => {
                self.wrong_type(node, path, "a list or a template that evaluates to one");
                return None;
            }
        }
        let shift = -i64::from(node.span.0);
        self.check_shape(node, Shape::Any, path, site, &mut Holes { list: &mut holes, shift });
        Some(ValueTemplate::new(Slice::new(&self.source, node.span), holes))
    }

    fn concurrency(&mut self, task: &Node<'_>, path: FieldPath<'_>) -> Option<u32> {
        let node = task.get("concurrency")?;
        let path = path.field("concurrency");
        if task.get("for_each").is_none() {
            let message = "`concurrency` requires `for_each`";
            self.problems.add(node.position, code::CONFLICT, path, message);
        }
        self.number(node, path, 1, u32::MAX)
    }

    fn take_references(&mut self, number: u32, position: Position, site: TemplateSite<'_>, edges: &mut Edges) {
        for (needed, is_result) in site.references {
            edges.add(Need { task: number, needed, position });
            if is_result {
                edges.reads.push(needed);
            }
        }
    }
}

fn run_kind(field: &str) -> &str {
    match field {
        "echo" | "wasm" => field,
        _ => "process",
    }
}

fn list_names(names: &[&str]) -> String {
    const SHOWN_MAX: usize = 10;
    let more = if names.len() > SHOWN_MAX { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN_MAX)].join(", "))
}
