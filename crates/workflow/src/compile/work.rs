//! Compiles the work of a task: job, sub-workflow, delay, approval, signal or switch.

use super::Compiler;
use super::edges::{Edges, Need};
use super::job::{Defaults, JOB_FIELDS};
use super::shape::{Holes, Shape};
use super::task::TaskContext;
use super::templates::TemplateSite;
use crate::delay::{Delay, TIME_FORM, parse_time};
use crate::diagnostic::code;
use crate::expression::Type;
use crate::job::JobTemplate;
use crate::limits;
use crate::node::{Data, MapEntry, Node};
use crate::path::FieldPath;
use crate::plan::{Case, TaskWork};
use crate::slice::Slice;
use crate::template::{ValueTemplate, has_templates};

impl Compiler {
    #[expect(clippy::too_many_arguments, reason = "a task may refer to all of these")]
    pub(super) fn work<'n, 'a>(
        &mut self,
        kind: &str,
        number: u32,
        entries: &'n [MapEntry<'a>],
        context: &TaskContext<'_>,
        defaults: &mut Defaults<'n, 'a>,
        edges: &mut Edges,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<TaskWork> {
        let node = &entries.iter().find(|entry| entry.key == kind)?.value;
        let field = path.field(kind);
        match kind {
            "run" => self.job(entries, node, defaults, path, site).map(|job| TaskWork::Job(Box::new(job))),
            "workflow" => self.sub_workflow(node, entries, context, path, site),
            "delay" => self.delay(node, field, site).map(TaskWork::Delay),
            "approval" => self.approval(node, field, site),
            "wait_for" => self.wait_for(node, field),
            "switch" => self.switch(node, number, context, edges, field, site),
            _ => None,
        }
    }

    pub(super) fn compensation<'n, 'a>(
        &mut self,
        node: &'n Node<'a>,
        defaults: &mut Defaults<'n, 'a>,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<JobTemplate> {
        let entries = self.map(node, path, "a command or an object with `run`")?;
        let fields = JOB_FIELDS.iter().map(|(name, _)| *name).chain(["run", "retry", "attempt_timeout"]);
        self.known_fields(entries, path, &fields.collect::<Vec<_>>());
        if let Some(entry) = entries.iter().find(|entry| entry.key == "priority") {
            let message = "the priority of a compensation is always critical: remove this field";
            self.problems.add(entry.position, code::CONFLICT, path.field("priority"), message);
        }
        let Some(run) = node.get("run") else {
            self.problems.add(
                node.position,
                code::MISSING_FIELD,
                path.field("run"),
                "the job of the compensation is missing",
            );
            return None;
        };
        self.job(entries, run, defaults, path, site)
    }

    fn sub_workflow(
        &mut self,
        node: &Node<'_>,
        entries: &[MapEntry<'_>],
        context: &TaskContext<'_>,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<TaskWork> {
        let child = self.child(node, path.field("workflow"), context);
        let with = entries.iter().find(|entry| entry.key == "with").map(|entry| &entry.value);
        let field = path.field("with");
        let mut holes = Vec::new();
        let template = match with {
            Some(with) => {
                match &with.data {
                    Data::Map(_) => {}
                    Data::Text(text) if has_templates(text) => {
                        let (_, kind) =
                            self.template(with, text, field, &mut TemplateSite::without_references(site))?;
                        if !kind.may_be(Type::Object) {
                            let message =
                                format!("expected an object, but the template evaluates to {}", kind.describe());
                            self.problems.add(with.position, code::WRONG_TYPE, field, message);
                            return None;
                        }
                    }
                    _ => {
                        self.wrong_type(with, field, "an object of inputs");
                        return None;
                    }
                }
                let shift = -i64::from(with.span.0);
                self.check_shape(with, Shape::Any, field, site, &mut Holes { list: &mut holes, shift });
                ValueTemplate::new(Slice::new(&self.source, with.span), holes)
            }
            None => ValueTemplate::empty_object(),
        };
        let child = child?;
        let plan = context.children.plans.get(child as usize)?.as_ref()?;
        self.given_inputs(plan, with, node, field);
        Some(TaskWork::Workflow { child, with: template })
    }

    /// `10s`, `${…}`, `{until: time}` or `{until: ${…}}`.
    fn delay(&mut self, node: &Node<'_>, path: FieldPath<'_>, site: &mut TemplateSite<'_>) -> Option<Delay> {
        match &node.data {
            Data::Text(text) if has_templates(text) => self.delay_template(node, text, path, site, false),
            Data::Map(entries) => {
                self.known_fields(entries, path, &["until"]);
                let Some(until) = node.get("until") else {
                    self.problems.add(node.position, code::MISSING_FIELD, path.field("until"), "the time is missing");
                    return None;
                };
                let path = path.field("until");
                let text = self.text(until, path)?;
                if has_templates(text) {
                    return self.delay_template(until, text, path, site, true);
                }
                let time = parse_time(text);
                if time.is_none() {
                    let message = format!("this is not a time: {TIME_FORM}");
                    self.problems.add(until.position, code::INVALID_VALUE, path, message);
                }
                time.map(Delay::until)
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => {
                self.duration(node, path).map(Delay::lasting)
            }
        }
    }

    fn delay_template(
        &mut self,
        node: &Node<'_>,
        text: &str,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
        only_time: bool,
    ) -> Option<Delay> {
        let (template, kind) = self.template(node, text, path, site)?;
        if !kind.may_be(Type::Text) {
            let message = format!("expected a string such as `90s`, but the template evaluates to {}", kind.describe());
            self.problems.add(node.position, code::WRONG_TYPE, path, message);
            return None;
        }
        Some(Delay::from_template(template, only_time))
    }

    fn approval(&mut self, node: &Node<'_>, path: FieldPath<'_>, site: &mut TemplateSite<'_>) -> Option<TaskWork> {
        let message = match &node.data {
            Data::Map(entries) => {
                self.known_fields(entries, path, &["message"]);
                let Some(message) = node.get("message") else {
                    self.problems.add(
                        node.position,
                        code::MISSING_FIELD,
                        path.field("message"),
                        "the message is missing",
                    );
                    return None;
                };
                self.text_template(message, path.field("message"), site)
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => {
                self.text_template(node, path, site)
            }
        };
        message.map(|message| TaskWork::Approval { message })
    }

    fn wait_for(&mut self, node: &Node<'_>, path: FieldPath<'_>) -> Option<TaskWork> {
        let signal = match &node.data {
            Data::Map(entries) => {
                self.known_fields(entries, path, &["signal"]);
                let Some(signal) = node.get("signal") else {
                    self.problems.add(
                        node.position,
                        code::MISSING_FIELD,
                        path.field("signal"),
                        "the name of the signal is missing",
                    );
                    return None;
                };
                self.name(signal, path.field("signal"))
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => self.name(node, path),
        };
        signal.map(|signal| TaskWork::WaitFor { signal: signal.into() })
    }

    fn switch(
        &mut self,
        node: &Node<'_>,
        number: u32,
        context: &TaskContext<'_>,
        edges: &mut Edges,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<TaskWork> {
        let Data::List(nodes) = &node.data else {
            self.wrong_type(node, path, "a list of `{when: …, then: …}`");
            return None;
        };
        if nodes.is_empty() || nodes.len() > limits::CASES_MAX {
            let message = format!("a switch has 1 to {} cases, not {}", limits::CASES_MAX, nodes.len());
            self.problems.add(node.position, code::INVALID_VALUE, path, message);
            return None;
        }
        let mut cases = Vec::with_capacity(nodes.len());
        for (at, case) in nodes.iter().enumerate() {
            let is_last = at + 1 == nodes.len();
            cases.push(self.case(case, is_last, number, context, edges, path.element(at), site));
        }
        let cases: Option<Vec<Case>> = cases.into_iter().collect();
        cases.map(|cases| TaskWork::Switch(cases.into()))
    }

    #[expect(clippy::too_many_arguments, reason = "a case may refer to all of these")]
    fn case(
        &mut self,
        node: &Node<'_>,
        is_last: bool,
        number: u32,
        context: &TaskContext<'_>,
        edges: &mut Edges,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<Case> {
        let entries = self.map(node, path, "`{when: …, then: …}`")?;
        self.known_fields(entries, path, &["when", "then", "default"]);
        let (name, then) = match (node.get("then"), node.get("default")) {
            (Some(then), None) => ("then", then),
            (None, Some(default)) => ("default", default),
            (Some(_), Some(_)) | (None, None) => {
                let message = "a case needs exactly one of `then` and `default`";
                self.problems.add(node.position, code::MISSING_FIELD, path.field("then"), message);
                return None;
            }
        };
        let condition = node.get("when");
        if condition.is_none() && !is_last {
            let message = "a case without `when` always matches: put it last";
            self.problems.add(node.position, code::MISSING_FIELD, path.field("when"), message);
        }
        if let (Some(condition), "default") = (condition, name) {
            let message = "a default cannot have a condition: write `then` instead of `default`";
            self.problems.add(condition.position, code::CONFLICT, path.field("when"), message);
        }
        let when = match condition {
            Some(condition) => Some(self.condition(condition, path.field("when"), site)?),
            None => None,
        };
        let mut chosen = Vec::new();
        let is_list = matches!(then.data, Data::List(_));
        let field = path.field(name);
        for (at, (name, node)) in self.texts(then, field, "a task or a list of tasks").into_iter().enumerate() {
            match context.names.task(name) {
                Ok(task) => {
                    chosen.push(task);
                    edges.chosen.push(Need { task, needed: number, position: node.position });
                }
                Err(error) => self.report(node, if is_list { field.element(at) } else { field }, error),
            }
        }
        // Sorted for binary search: a case may select very many tasks.
        chosen.sort_unstable();
        chosen.dedup();
        Some(Case { when, then: chosen.into() })
    }
}
