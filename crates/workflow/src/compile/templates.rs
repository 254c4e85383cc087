//! Compiles the templates of a definition.

use std::cell::Cell;
use std::sync::Arc;

use hashbrown::HashMap;

use super::Compiler;
use crate::diagnostic::{closest, code};
use crate::expression::{Expression, Names, TemplateError, Type, parse};
use crate::limits;
use crate::node::{Data, Node};
use crate::path::FieldPath;
use crate::plan::{Input, InputType};
use crate::slice::Slice;
use crate::template::{Segment, Template, TemplatePart, TemplateParts, has_templates, segments};

/// Names that templates of one definition can refer to.
pub(super) struct DefinitionNames<'a> {
    pub inputs: &'a [Input],
    pub tasks: Vec<&'a str>,
    pub numbers: HashMap<&'a str, u32, foldhash::fast::RandomState>,
    /// Budget of suggestions for unknown names, because comparing with many tasks takes time.
    pub suggestions_left: Cell<usize>,
}

impl DefinitionNames<'_> {
    /// Index of a task that is named outside of a template.
    pub fn task(&self, name: &str) -> Result<u32, TemplateError> {
        self.numbers.get(name).copied().ok_or_else(|| TemplateError {
            code: code::UNKNOWN_TASK,
            message: format!("there is no task `{name}`"),
            suggestion: closest(name, self.suggested()).map(|near| format!("did you mean `{near}`?")),
        })
    }

    /// Candidates for a suggestion.
    fn suggested(&self) -> impl Iterator<Item = &str> {
        let left = self.suggestions_left.get();
        self.suggestions_left.set(left.saturating_sub(1));
        let names: &[&str] = if left > 0 { &self.tasks } else { &[] };
        names.iter().copied()
    }
}

/// Names available to the templates of one field, and the references collected from them.
pub(super) struct TemplateSite<'a> {
    pub names: &'a DefinitionNames<'a>,
    pub has_item: bool,
    pub has_result: bool,
    /// Tasks referred to so far, and whether the result is read.
    pub references: Vec<(u32, bool)>,
    /// Whether `result`, the result of the compensated task, is read.
    pub reads_own_result: bool,
}

impl<'a> TemplateSite<'a> {
    pub fn new(names: &'a DefinitionNames<'a>) -> Self {
        Self { names, has_item: false, has_result: false, references: Vec::new(), reads_own_result: false }
    }

    /// The same site without its references, for a check of a template that is compiled again.
    pub fn without_references(other: &Self) -> Self {
        Self { has_item: other.has_item, has_result: other.has_result, ..Self::new(other.names) }
    }
}

impl Names for TemplateSite<'_> {
    fn input(&self, name: &str) -> Option<InputType> {
        self.names.inputs.iter().find(|input| *input.name == *name).map(|input| input.kind)
    }

    fn task(&self, name: &str) -> Option<u32> {
        self.names.numbers.get(name).copied()
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.names.inputs.iter().map(|input| &*input.name))
    }

    fn tasks(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.names.suggested())
    }

    fn has_item(&self) -> bool {
        self.has_item
    }

    fn has_result(&self) -> bool {
        self.has_result
    }
}

impl Compiler {
    /// Compiles a string. The type is that of its value, as far as it is known.
    pub(super) fn template(
        &mut self,
        node: &Node<'_>,
        text: &str,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<(Template, Type)> {
        match self.parts(text, site) {
            Ok((parts, kind)) => {
                let field = self.field_name(path);
                let template = Template::new(Slice::new(&self.source, node.span), field, parts);
                for expression in template.expressions() {
                    expression.for_each_reference(&mut |task, is_result| site.references.push((task, is_result)));
                    site.reads_own_result |= expression.reads_own_result();
                }
                Some((template, kind))
            }
            Err(error) => {
                self.report(node, path, error);
                None
            }
        }
    }

    fn parts(&mut self, text: &str, site: &TemplateSite<'_>) -> Result<(TemplateParts, Type), TemplateError> {
        let segments = segments(text)?;
        self.expressions += segments.iter().filter(|segment| matches!(segment, Segment::Expression(_))).count();
        if self.expressions > limits::EXPRESSIONS_MAX {
            let message = format!("the definition has more than {} expressions", limits::EXPRESSIONS_MAX);
            return Err(TemplateError { code: code::TOO_LARGE, ..TemplateError::new(message) });
        }
        let named = |expression: &str, mut error: TemplateError| {
            let shown: String = expression.trim().chars().take(200).collect();
            error.message = format!("`${{{shown}}}`: {}", error.message);
            error
        };
        if let [Segment::Expression(expression)] = segments[..] {
            let (expression, kind) = parse(expression, site).map_err(|error| named(expression, error))?;
            return Ok((TemplateParts::Whole(expression), kind));
        }
        let mut parts = Vec::with_capacity(segments.len());
        for segment in segments {
            parts.push(match segment {
                Segment::Text(text) => TemplatePart::Text(text.into()),
                Segment::Expression(expression) => {
                    TemplatePart::Expression(parse(expression, site).map_err(|error| named(expression, error))?.0)
                }
            });
        }
        Ok((TemplateParts::Joined(parts.into()), Type::Text))
    }

    /// A template that evaluates to a boolean: `${…}`, or a literal `true` or `false`.
    pub(super) fn condition(
        &mut self,
        node: &Node<'_>,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<Template> {
        match &node.data {
            Data::Bool(truth) => {
                let field = self.field_name(path);
                let parts = TemplateParts::Whole(Expression::Bool(*truth));
                Some(Template::new(Slice::new(&self.source, node.span), field, parts))
            }
            Data::Text(text) if !has_templates(text) => {
                let suggestion = Some(format!("write `${{{text}}}`"));
                let message = "a condition must be inside `${…}`";
                self.problems.add_with_suggestion(node.position, code::INVALID_TEMPLATE, path, message, suggestion);
                None
            }
            Data::Text(text) => {
                let (template, kind) = self.template(node, text, path, site)?;
                if !kind.may_be(Type::Boolean) {
                    let message = format!("a condition must be a boolean, not {}", kind.describe());
                    self.problems.add(node.position, code::WRONG_TYPE, path, message);
                    return None;
                }
                Some(template)
            }
            Data::Null | Data::Number(_) | Data::List(_) | Data::Map(_) => {
                self.wrong_type(node, path, "a condition such as `${inputs.a == 1}`");
                None
            }
        }
    }

    /// A string that may contain templates.
    pub(super) fn text_template(
        &mut self,
        node: &Node<'_>,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
    ) -> Option<Template> {
        match &node.data {
            Data::Text(text) => self.template(node, text, path, site).map(|(template, _)| template),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::List(_) | Data::Map(_) => {
                self.wrong_type(node, path, "a string");
                None
            }
        }
    }

    pub(super) fn report(&mut self, node: &Node<'_>, path: FieldPath<'_>, error: TemplateError) {
        self.problems.add_with_suggestion(node.position, error.code, path, error.message, error.suggestion);
    }

    pub(super) fn field_name(&mut self, path: FieldPath<'_>) -> Arc<str> {
        let name = path.within_task();
        if let Some(known) = self.field_names.get(&name) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = name.as_str().into();
        self.field_names.insert(name, Arc::clone(&shared));
        shared
    }
}
