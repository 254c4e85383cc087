//! What tasks do, one after the other.

use super::Compiler;
use super::edges::{Edges, Need};
use super::job::{Defaults, JOB_FIELDS};
use super::shape::{Holes, Shape};
use super::task::Within;
use super::templates::Site;
use crate::delay::{Delay, TIME_FORM, parse_time};
use crate::diagnostic::code;
use crate::expression::Type;
use crate::job::JobTemplate;
use crate::limits;
use crate::node::{Data, Entry, Node};
use crate::path::Path;
use crate::plan::{Act, Case};
use crate::slice::Slice;
use crate::template::{ValueTemplate, has_templates};

impl Compiler {
    #[expect(clippy::too_many_arguments, reason = "everything that a task may refer to")]
    pub(super) fn act<'n, 'a>(
        &mut self,
        kind: &str,
        number: u32,
        entries: &'n [Entry<'a>],
        within: &Within<'_>,
        defaults: &mut Defaults<'n, 'a>,
        edges: &mut Edges,
        path: Path<'_>,
        site: &mut Site<'_>,
    ) -> Option<Act> {
        let node = &entries.iter().find(|entry| entry.key == kind)?.value;
        let field = path.field(kind);
        match kind {
            "run" => self.job(entries, node, defaults, path, site).map(|job| Act::Job(Box::new(job))),
            "workflow" => self.sub_workflow(node, entries, within, path, site),
            "delay" => self.delay(node, field, site).map(Act::Delay),
            "approval" => self.approval(node, field, site),
            "wait_for" => self.wait_for(node, field),
            "switch" => self.switch(node, number, within, edges, field, site),
            _ => None,
        }
    }

    pub(super) fn compensation<'n, 'a>(
        &mut self,
        node: &'n Node<'a>,
        defaults: &mut Defaults<'n, 'a>,
        path: Path<'_>,
        site: &mut Site<'_>,
    ) -> Option<JobTemplate> {
        let entries = self.map(node, path, "a command, or an object with `run`,")?;
        let fields = JOB_FIELDS.iter().map(|(name, _)| *name).chain(["run", "retry", "attempt_timeout"]);
        self.known_fields(entries, path, &fields.collect::<Vec<_>>());
        if let Some(entry) = entries.iter().find(|entry| entry.key == "priority") {
            let message = "a compensation is always critical: leave this out";
            self.problems.add(entry.place, code::CONFLICT, path.field("priority"), message);
        }
        let Some(run) = node.get("run") else {
            self.problems.add(node.place, code::MISSING_FIELD, path.field("run"), "what undoes it?");
            return None;
        };
        self.job(entries, run, defaults, path, site)
    }

    fn sub_workflow(
        &mut self,
        node: &Node<'_>,
        entries: &[Entry<'_>],
        within: &Within<'_>,
        path: Path<'_>,
        site: &mut Site<'_>,
    ) -> Option<Act> {
        let child = self.child(node, path.field("workflow"), within);
        let with = entries.iter().find(|entry| entry.key == "with").map(|entry| &entry.value);
        let field = path.field("with");
        let mut holes = Vec::new();
        let template = match with {
            Some(with) => {
                match &with.data {
                    Data::Map(_) => {}
                    Data::Text(text) if has_templates(text) => {
                        let (_, kind) = self.template(with, text, field, &mut Site::clone_of(site))?;
                        if !kind.may_be(Type::Object) {
                            let message = format!("this comes to {}: an object is needed", kind.shown());
                            self.problems.add(with.place, code::WRONG_TYPE, field, message);
                            return None;
                        }
                    }
                    _ => {
                        self.wrong_type(with, field, "an object of inputs");
                        return None;
                    }
                }
                let shift = -i64::from(with.span.0);
                self.shaped(with, Shape::Any, field, site, &mut Holes { list: &mut holes, shift });
                ValueTemplate::new(Slice::new(&self.source, with.span), holes)
            }
            None => ValueTemplate::empty_object(),
        };
        let child = child?;
        let plan = within.children.plans.get(child as usize)?.as_ref()?;
        self.given_inputs(plan, with, node, field);
        Some(Act::Workflow { child, with: template })
    }

    /// `10s`, `${…}`, `{until: time}` or `{until: ${…}}`.
    fn delay(&mut self, node: &Node<'_>, path: Path<'_>, site: &mut Site<'_>) -> Option<Delay> {
        match &node.data {
            Data::Text(text) if has_templates(text) => self.told_delay(node, text, path, site, false),
            Data::Map(entries) => {
                self.known_fields(entries, path, &["until"]);
                let Some(until) = node.get("until") else {
                    self.problems.add(node.place, code::MISSING_FIELD, path.field("until"), "until when?");
                    return None;
                };
                let path = path.field("until");
                let text = self.text(until, path)?;
                if has_templates(text) {
                    return self.told_delay(until, text, path, site, true);
                }
                let time = parse_time(text);
                if time.is_none() {
                    let message = format!("this is no time: {TIME_FORM}");
                    self.problems.add(until.place, code::INVALID_VALUE, path, message);
                }
                time.map(Delay::until)
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => {
                self.duration(node, path).map(Delay::lasting)
            }
        }
    }

    fn told_delay(
        &mut self,
        node: &Node<'_>,
        text: &str,
        path: Path<'_>,
        site: &mut Site<'_>,
        only_time: bool,
    ) -> Option<Delay> {
        let (template, kind) = self.template(node, text, path, site)?;
        if !kind.may_be(Type::Text) {
            let message = format!("this comes to {}: a text like `90s` is needed", kind.shown());
            self.problems.add(node.place, code::WRONG_TYPE, path, message);
            return None;
        }
        Some(Delay::told(template, only_time))
    }

    fn approval(&mut self, node: &Node<'_>, path: Path<'_>, site: &mut Site<'_>) -> Option<Act> {
        let message = match &node.data {
            Data::Map(entries) => {
                self.known_fields(entries, path, &["message"]);
                let Some(message) = node.get("message") else {
                    self.problems.add(
                        node.place,
                        code::MISSING_FIELD,
                        path.field("message"),
                        "what is to be approved?",
                    );
                    return None;
                };
                self.text_template(message, path.field("message"), site)
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => {
                self.text_template(node, path, site)
            }
        };
        message.map(|message| Act::Approval { message })
    }

    fn wait_for(&mut self, node: &Node<'_>, path: Path<'_>) -> Option<Act> {
        let signal = match &node.data {
            Data::Map(entries) => {
                self.known_fields(entries, path, &["signal"]);
                let Some(signal) = node.get("signal") else {
                    self.problems.add(node.place, code::MISSING_FIELD, path.field("signal"), "for which signal?");
                    return None;
                };
                self.name(signal, path.field("signal"))
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => self.name(node, path),
        };
        signal.map(|signal| Act::WaitFor { signal: signal.into() })
    }

    fn switch(
        &mut self,
        node: &Node<'_>,
        number: u32,
        within: &Within<'_>,
        edges: &mut Edges,
        path: Path<'_>,
        site: &mut Site<'_>,
    ) -> Option<Act> {
        let Data::List(nodes) = &node.data else {
            self.wrong_type(node, path, "a list of `{when: …, then: …}`");
            return None;
        };
        if nodes.is_empty() || nodes.len() > limits::CASES_MAX {
            let message = format!("a switch has 1 to {} cases, this one has {}", limits::CASES_MAX, nodes.len());
            self.problems.add(node.place, code::INVALID_VALUE, path, message);
            return None;
        }
        let mut cases = Vec::with_capacity(nodes.len());
        for (at, case) in nodes.iter().enumerate() {
            let is_last = at + 1 == nodes.len();
            cases.push(self.case(case, is_last, number, within, edges, path.element(at), site));
        }
        let cases: Option<Vec<Case>> = cases.into_iter().collect();
        cases.map(|cases| Act::Switch(cases.into()))
    }

    #[expect(clippy::too_many_arguments, reason = "everything that a case may refer to")]
    fn case(
        &mut self,
        node: &Node<'_>,
        is_last: bool,
        number: u32,
        within: &Within<'_>,
        edges: &mut Edges,
        path: Path<'_>,
        site: &mut Site<'_>,
    ) -> Option<Case> {
        let entries = self.map(node, path, "`{when: …, then: …}`")?;
        self.known_fields(entries, path, &["when", "then", "default"]);
        let (name, then) = match (node.get("then"), node.get("default")) {
            (Some(then), None) => ("then", then),
            (None, Some(default)) => ("default", default),
            (Some(_), Some(_)) | (None, None) => {
                let message = "a case has `then`, or `default` if it is the last";
                self.problems.add(node.place, code::MISSING_FIELD, path.field("then"), message);
                return None;
            }
        };
        let condition = node.get("when");
        if condition.is_none() && !is_last {
            let message = "without `when` it always holds, and the cases after it never do: put it last";
            self.problems.add(node.place, code::MISSING_FIELD, path.field("when"), message);
        }
        if let (Some(condition), "default") = (condition, name) {
            let message = "a default has no condition: write `then` instead of `default`";
            self.problems.add(condition.place, code::CONFLICT, path.field("when"), message);
        }
        let when = match condition {
            Some(condition) => Some(self.condition(condition, path.field("when"), site)?),
            None => None,
        };
        let mut chosen = Vec::new();
        let is_list = matches!(then.data, Data::List(_));
        let field = path.field(name);
        for (at, (name, node)) in self.texts(then, field, "a task, or a list of tasks,").into_iter().enumerate() {
            match within.known.task(name) {
                Ok(task) => {
                    chosen.push(task);
                    edges.chosen.push(Need { task, needed: number, place: node.place });
                }
                Err(wrong) => self.wrong(node, if is_list { field.element(at) } else { field }, wrong),
            }
        }
        // Sorted: whoever looks for one among very many finds it at once.
        chosen.sort_unstable();
        chosen.dedup();
        Some(Case { when, then: chosen.into() })
    }
}
