//! Texts of a definition become templates.

use std::cell::Cell;
use std::sync::Arc;

use hashbrown::HashMap;

use super::Compiler;
use crate::diagnostic::{closest, code};
use crate::expression::{Expression, Names, Type, Wrong, parse};
use crate::limits;
use crate::node::{Data, Node};
use crate::path::Path;
use crate::plan::{Input, Kind};
use crate::slice::Slice;
use crate::template::{Part, Parts, Piece, Template, has_templates, pieces};

/// What can be named within one definition.
pub(super) struct Known<'a> {
    pub inputs: &'a [Input],
    pub tasks: Vec<&'a str>,
    pub numbers: HashMap<&'a str, u32, foldhash::fast::RandomState>,
    /// For how many names that are not known another one is still looked for: among many tasks that takes time.
    pub suggestions_left: Cell<usize>,
}

impl Known<'_> {
    /// The number of a task that is named somewhere else than in a template.
    pub fn task(&self, name: &str) -> Result<u32, Wrong> {
        self.numbers.get(name).copied().ok_or_else(|| Wrong {
            code: code::UNKNOWN_TASK,
            message: format!("there is no task `{name}`"),
            suggestion: closest(name, self.suggested()).map(|near| format!("did you mean `{near}`?")),
        })
    }

    /// Tasks that might have been meant.
    fn suggested(&self) -> impl Iterator<Item = &str> {
        let left = self.suggestions_left.get();
        self.suggestions_left.set(left.saturating_sub(1));
        let names: &[&str] = if left > 0 { &self.tasks } else { &[] };
        names.iter().copied()
    }
}

/// Where templates stand, and what they refer to.
pub(super) struct Site<'a> {
    pub known: &'a Known<'a>,
    pub has_item: bool,
    pub has_result: bool,
    /// Tasks that templates have referred to so far, and whether they read the result.
    pub references: Vec<(u32, bool)>,
    /// Whether `result` was read.
    pub reads_own_result: bool,
}

impl<'a> Site<'a> {
    pub fn new(known: &'a Known<'a>) -> Self {
        Self { known, has_item: false, has_result: false, references: Vec::new(), reads_own_result: false }
    }

    /// The same place, for a look at what will be compiled again.
    pub fn clone_of(other: &Self) -> Self {
        Self { has_item: other.has_item, has_result: other.has_result, ..Self::new(other.known) }
    }
}

impl Names for Site<'_> {
    fn input(&self, name: &str) -> Option<Kind> {
        self.known.inputs.iter().find(|input| *input.name == *name).map(|input| input.kind)
    }

    fn task(&self, name: &str) -> Option<u32> {
        self.known.numbers.get(name).copied()
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.known.inputs.iter().map(|input| &*input.name))
    }

    fn tasks(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.known.suggested())
    }

    fn has_item(&self) -> bool {
        self.has_item
    }

    fn has_result(&self) -> bool {
        self.has_result
    }
}

impl Compiler {
    /// A text, with the type of its value as far as it is known.
    pub(super) fn template(
        &mut self,
        node: &Node<'_>,
        text: &str,
        path: Path<'_>,
        site: &mut Site<'_>,
    ) -> Option<(Template, Type)> {
        match self.parts(text, site) {
            Ok((parts, kind)) => {
                let field = self.field_name(path);
                let template = Template::new(Slice::new(&self.source, node.span), field, parts);
                for expression in template.expressions() {
                    expression.references(&mut |task, is_result| site.references.push((task, is_result)));
                    site.reads_own_result |= expression.reads_own_result();
                }
                Some((template, kind))
            }
            Err(wrong) => {
                self.wrong(node, path, wrong);
                None
            }
        }
    }

    fn parts(&mut self, text: &str, site: &Site<'_>) -> Result<(Parts, Type), Wrong> {
        let pieces = pieces(text)?;
        self.expressions += pieces.iter().filter(|piece| matches!(piece, Piece::Expression(_))).count();
        if self.expressions > limits::EXPRESSIONS_MAX {
            let message = format!("more than {} expressions are in one definition", limits::EXPRESSIONS_MAX);
            return Err(Wrong { code: code::TOO_LARGE, ..Wrong::new(message) });
        }
        let named = |expression: &str, mut wrong: Wrong| {
            let shown: String = expression.trim().chars().take(200).collect();
            wrong.message = format!("`${{{shown}}}`: {}", wrong.message);
            wrong
        };
        if let [Piece::Expression(expression)] = pieces[..] {
            let (expression, kind) = parse(expression, site).map_err(|wrong| named(expression, wrong))?;
            return Ok((Parts::Whole(expression), kind));
        }
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            parts.push(match piece {
                Piece::Text(text) => Part::Text(text.into()),
                Piece::Expression(expression) => {
                    Part::Expression(parse(expression, site).map_err(|wrong| named(expression, wrong))?.0)
                }
            });
        }
        Ok((Parts::Joined(parts.into()), Type::Text))
    }

    /// A template that comes to a boolean: `${…}`, or `true` and `false` themselves.
    pub(super) fn condition(&mut self, node: &Node<'_>, path: Path<'_>, site: &mut Site<'_>) -> Option<Template> {
        match &node.data {
            Data::Bool(truth) => {
                let field = self.field_name(path);
                let parts = Parts::Whole(Expression::Bool(*truth));
                Some(Template::new(Slice::new(&self.source, node.span), field, parts))
            }
            Data::Text(text) if !has_templates(text) => {
                let suggestion = Some(format!("write `${{{text}}}`"));
                let message = "a condition stands in `${…}`";
                self.problems.advise(node.place, code::INVALID_TEMPLATE, path, message, suggestion);
                None
            }
            Data::Text(text) => {
                let (template, kind) = self.template(node, text, path, site)?;
                if !kind.may_be(Type::Boolean) {
                    let message = format!("a condition is true or false, this is {}", kind.shown());
                    self.problems.add(node.place, code::WRONG_TYPE, path, message);
                    return None;
                }
                Some(template)
            }
            Data::Null | Data::Number(_) | Data::List(_) | Data::Map(_) => {
                self.wrong_type(node, path, "a condition like `${inputs.a == 1}`");
                None
            }
        }
    }

    /// A text that may have templates in it.
    pub(super) fn text_template(&mut self, node: &Node<'_>, path: Path<'_>, site: &mut Site<'_>) -> Option<Template> {
        match &node.data {
            Data::Text(text) => self.template(node, text, path, site).map(|(template, _)| template),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::List(_) | Data::Map(_) => {
                self.wrong_type(node, path, "a text");
                None
            }
        }
    }

    pub(super) fn wrong(&mut self, node: &Node<'_>, path: Path<'_>, wrong: Wrong) {
        self.problems.advise(node.place, wrong.code, path, wrong.message, wrong.suggestion);
    }

    pub(super) fn field_name(&mut self, path: Path<'_>) -> Arc<str> {
        let name = path.within();
        if let Some(known) = self.field_names.get(&name) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = name.as_str().into();
        self.field_names.insert(name, Arc::clone(&shared));
        shared
    }
}
