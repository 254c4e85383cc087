//! One task.

use model::time::Millis;

use super::Compiler;
use super::definition::{Children, ON_FAILURE};
use super::edges::{Edges, Need};
use super::job::Defaults;
use super::shape::{Holes, Shape};
use super::templates::{Known, Site};
use crate::diagnostic::{Place, closest, code};
use crate::expression::Type;
use crate::node::{Data, Entry, Node};
use crate::path::Path;
use crate::plan::{ForEach, OnFailure, Task};
use crate::slice::Slice;
use crate::template::{ValueTemplate, has_templates};

/// Everything a task can say. The first few are what it does, and it does one thing.
const FIELDS: [&str; 25] = [
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
    "inputs",
];
const KINDS: usize = 6;
/// Said of the job, and so only where there is one.
const JOB_ONLY: [&str; 11] = [
    "merge",
    "retry",
    "attempt_timeout",
    "topic",
    "priority",
    "requires",
    "labels",
    "sandbox",
    "limits",
    "inputs",
    "outputs",
];

/// What is around a task.
pub(super) struct Within<'a> {
    pub known: &'a Known<'a>,
    pub epochs: &'a [&'a str],
    pub children: &'a Children<'a>,
    /// Names of the definitions around it, its own last.
    pub outer: &'a [&'a str],
    pub on_failure: OnFailure,
    pub timeout: Option<Millis>,
}

impl Compiler {
    /// A task whose needs are not known yet: those are added to the edges.
    pub(super) fn task<'n, 'a>(
        &mut self,
        number: u32,
        entry: &'n Entry<'a>,
        within: &Within<'_>,
        defaults: &mut Defaults<'n, 'a>,
        edges: &mut Edges,
        path: Path<'_>,
    ) -> Option<Task> {
        let node = &entry.value;
        let entries = self.map(node, path, "an object, like `{run: …}`,")?;
        self.known_task_fields(entries, path);
        let before = self.problems.count();
        let kind = self.kind(entry, entries, path);
        let epoch = self.epoch(entry, within, path);
        edges.epochs[number as usize] = epoch;
        if let Some(needs) = node.get("needs") {
            self.needs(needs, number, within, edges, path.field("needs"));
        }
        // What decides about the task as a whole knows no item.
        let mut site = Site::new(within.known);
        let when = node.get("when").and_then(|node| self.condition(node, path.field("when"), &mut site));
        let for_each = node.get("for_each").and_then(|node| self.for_each(node, path.field("for_each"), &mut site));
        let concurrency = self.concurrency(node, path);
        site.has_item = node.get("for_each").is_some();
        let act = kind.and_then(|kind| self.act(kind, number, entries, within, defaults, edges, path, &mut site));
        let merge = node.get("merge").and_then(|node| self.text_template(node, path.field("merge"), &mut site));
        let on_failure =
            node.get("on_failure").and_then(|node| self.one_of(node, path.field("on_failure"), &ON_FAILURE));
        let timeout = node.get("timeout").and_then(|node| self.timeout(node, path.field("timeout")));
        self.take_references(number, entry.place, site, edges);
        let compensation = node.get("compensation").and_then(|compensation| {
            let mut site = Site::new(within.known);
            site.has_item = node.get("for_each").is_some();
            site.has_result = true;
            let job = self.compensation(compensation, defaults, path.field("compensation"), &mut site);
            // What it refers to need not come before the task, but is read.
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
            act: act?,
            merge,
            on_failure: on_failure.unwrap_or(within.on_failure),
            timeout: timeout.or(within.timeout),
            compensation,
            is_read: false,
        })
    }

    fn known_task_fields(&mut self, entries: &[Entry<'_>], path: Path<'_>) {
        let unknown = |entry: &Entry<'_>| !FIELDS.contains(&&*entry.key) && entry.key != "outputs";
        for entry in entries.iter().filter(|entry| unknown(entry)) {
            let known = FIELDS.into_iter().chain(["outputs"]).filter(|_| !self.problems.are_many());
            let near = closest(&entry.key, known);
            let suggestion = match (&*entry.key, near) {
                ("depends_on" | "dependencies" | "after", _) => Some("did you mean `needs`?".to_owned()),
                ("if" | "condition", _) => Some("did you mean `when`?".to_owned()),
                ("command" | "process" | "script" | "echo" | "wasm", _) => {
                    Some(format!("did you mean `run: {{{}: …}}`?", run_kind(&entry.key)))
                }
                (_, near) => near.map(|near| format!("did you mean `{near}`?")),
            };
            let message = "there is no such field";
            self.problems.advise(entry.place, code::UNKNOWN_FIELD, path.field(&entry.key), message, suggestion);
        }
    }

    /// Which of the six it does, and whether what else it says goes with that.
    fn kind<'n>(&mut self, task: &Entry<'_>, entries: &'n [Entry<'_>], path: Path<'_>) -> Option<&'n str> {
        let kinds: Vec<&Entry<'_>> = entries.iter().filter(|entry| FIELDS[..KINDS].contains(&&*entry.key)).collect();
        let kind = match kinds[..] {
            [kind] => &*kind.key,
            [] => {
                let message = "what does it do? One of run, workflow, delay, approval, wait_for and switch is needed";
                self.problems.add(task.place, code::MISSING_FIELD, path, message);
                return None;
            }
            // The same one twice is told as that.
            [first, second] if first.key == second.key => &*first.key,
            [first, second, ..] => {
                let message = format!("a task does one thing: `{}` or `{}`", first.key, second.key);
                self.problems.add(second.place, code::CONFLICT, path, message);
                return None;
            }
        };
        for entry in entries {
            let field = path.field(&entry.key);
            let refusal = match &*entry.key {
                name if JOB_ONLY.contains(&name) && kind != "run" => "only a task with `run` has this",
                "with" if kind != "workflow" => "only a task with `workflow` has this",
                "compensation" if !matches!(kind, "run" | "workflow") => {
                    "only what a task with `run` or `workflow` has done can be undone"
                }
                "for_each" if kind == "switch" => "a switch decides once: it has no `for_each`",
                _ => continue,
            };
            self.problems.add(entry.place, code::CONFLICT, field, refusal);
        }
        Some(kind)
    }

    fn epoch(&mut self, entry: &Entry<'_>, within: &Within<'_>, path: Path<'_>) -> u32 {
        let field = path.field("epoch");
        match (entry.value.get("epoch"), within.epochs) {
            (None, []) => 0,
            (None, epochs) => {
                let message = "the workflow has epochs: which one is it in?";
                let suggestion = Some(format!("one of: {}", shown(epochs)));
                self.problems.advise(entry.place, code::MISSING_FIELD, field, message, suggestion);
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
                    (None, []) => "name the epochs in their order first: `epochs: [first, second]`".to_owned(),
                    (None, epochs) => format!("one of: {}", shown(epochs)),
                };
                self.problems.advise(node.place, code::UNKNOWN_EPOCH, field, message, Some(suggestion));
                0
            }
        }
    }

    /// A list, or a template that comes to one.
    fn for_each(&mut self, node: &Node<'_>, path: Path<'_>, site: &mut Site<'_>) -> Option<ValueTemplate> {
        let mut holes = Vec::new();
        match &node.data {
            Data::List(elements) => {
                if elements.len() > crate::limits::ITEMS_MAX {
                    let message =
                        format!("{} items are too many: at most {}", elements.len(), crate::limits::ITEMS_MAX);
                    self.problems.add(node.place, code::TOO_LARGE, path, message);
                    return None;
                }
            }
            Data::Text(text) if has_templates(text) => {
                let (_, kind) = self.template(node, text, path, &mut Site::clone_of(site))?;
                if !kind.may_be(Type::List) {
                    let message = format!("this comes to {}: a list is needed", kind.shown());
                    self.problems.add(node.place, code::WRONG_TYPE, path, message);
                    return None;
                }
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::Map(_) => {
                self.wrong_type(node, path, "a list, or a template that comes to one,");
                return None;
            }
        }
        let shift = -i64::from(node.span.0);
        self.shaped(node, Shape::Any, path, site, &mut Holes { list: &mut holes, shift });
        Some(ValueTemplate::new(Slice::new(&self.source, node.span), holes))
    }

    fn concurrency(&mut self, task: &Node<'_>, path: Path<'_>) -> Option<u32> {
        let node = task.get("concurrency")?;
        let path = path.field("concurrency");
        if task.get("for_each").is_none() {
            let message = "without `for_each` there is nothing to run at once";
            self.problems.add(node.place, code::CONFLICT, path, message);
        }
        self.number(node, path, 1, u32::MAX)
    }

    fn take_references(&mut self, number: u32, place: Place, site: Site<'_>, edges: &mut Edges) {
        for (needed, is_result) in site.references {
            edges.add(Need { task: number, needed, place });
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

fn shown(names: &[&str]) -> String {
    const SHOWN_MAX: usize = 10;
    let more = if names.len() > SHOWN_MAX { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN_MAX)].join(", "))
}
