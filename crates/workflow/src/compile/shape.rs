//! Schema of the fields of a job, and collection of the templates in them.

use super::Compiler;
use super::templates::TemplateSite;
use crate::diagnostic::{closest, code};
use crate::expression::Type;
use crate::node::{Data, Node};
use crate::path::FieldPath;
use crate::template::{Hole, has_templates};

/// Expected form of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Any,
    Text,
    /// Non-negative.
    Integer,
    Boolean,
    Keyword(&'static [&'static str]),
    Texts,
    TextMap,
    /// An object with these fields.
    Fields(&'static [(&'static str, Shape)]),
}

impl Shape {
    /// With its article, for messages.
    fn expected(self) -> &'static str {
        match self {
            Self::Any => "a value",
            Self::Text | Self::Keyword(_) => "a string",
            Self::Integer => "a whole number",
            Self::Boolean => "true or false",
            Self::Texts => "a list of strings",
            Self::TextMap => "an object of strings",
            Self::Fields(_) => "an object",
        }
    }

    /// Required type of a template in this position.
    fn kind(self) -> Type {
        match self {
            // Any value can be converted to a string.
            Self::Any | Self::Text | Self::Keyword(_) => Type::Unknown,
            Self::Integer => Type::Integer,
            Self::Boolean => Type::Boolean,
            Self::Texts => Type::List,
            Self::TextMap | Self::Fields(_) => Type::Object,
        }
    }

    fn is_text(self) -> bool {
        match self {
            Self::Text | Self::Keyword(_) => true,
            Self::Any | Self::Integer | Self::Boolean | Self::Texts | Self::TextMap | Self::Fields(_) => false,
        }
    }
}

const STRINGS: Shape = Shape::TextMap;
pub(super) const PROCESS: Shape = Shape::Fields(&[
    ("command", Shape::Texts),
    ("env", STRINGS),
    ("stdin", Shape::Text),
    ("worker", Shape::Text),
    ("function", Shape::Text),
]);
pub(super) const ECHO: Shape = Shape::Fields(&[
    ("value", Shape::Any),
    ("delay_ms", Shape::Integer),
    ("fail", Shape::Keyword(&["error", "fatal"])),
]);
pub(super) const WASM: Shape =
    Shape::Fields(&[("component", Shape::Text), ("args", Shape::Texts), ("env", STRINGS), ("stdin", Shape::Text)]);
pub(super) const LIMITS: Shape = Shape::Fields(&[
    ("cpu_ms", Shape::Integer),
    ("memory_bytes", Shape::Integer),
    ("pids", Shape::Integer),
    ("output_bytes", Shape::Integer),
    ("open_files", Shape::Integer),
    ("fuel", Shape::Integer),
]);

/// Collects holes. Their offsets count from the start of the text that contains them.
pub(super) struct Holes<'h> {
    pub list: &'h mut Vec<Hole>,
    /// Added to an offset in the source to get the offset in that text.
    pub shift: i64,
}

impl Holes<'_> {
    fn offset(&self, source: u32) -> u32 {
        u32::try_from(i64::from(source) + self.shift).expect("a hole is inside its text")
    }
}

impl Compiler {
    /// Checks a value and collects its templates. False if the value is invalid.
    pub(super) fn check_shape(
        &mut self,
        node: &Node<'_>,
        shape: Shape,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
        holes: &mut Holes<'_>,
    ) -> bool {
        match (&node.data, shape) {
            (Data::Text(text), shape) if has_templates(text) => self.add_hole(node, text, shape, path, site, holes),
            (Data::Text(_), Shape::Text | Shape::Any) => true,
            (Data::Text(text), Shape::Keyword(keywords)) => self.check_keyword(node, text, keywords, path),
            (Data::Number(number), Shape::Integer) => {
                if number.as_u64().is_none() {
                    let message = format!("{number} is invalid: expected a whole number of at least 0");
                    self.problems.add(node.position, code::INVALID_VALUE, path, message);
                }
                number.as_u64().is_some()
            }
            (Data::Null | Data::Bool(_) | Data::Number(_), Shape::Any) | (Data::Bool(_), Shape::Boolean) => true,
            (Data::List(nodes), Shape::Any | Shape::Texts) => {
                let element = if matches!(shape, Shape::Texts) { Shape::Text } else { Shape::Any };
                let mut good = true;
                for (at, node) in nodes.iter().enumerate() {
                    good &= self.check_shape(node, element, path.element(at), site, holes);
                }
                good
            }
            (Data::Map(entries), Shape::Any | Shape::TextMap) => {
                let element = if matches!(shape, Shape::TextMap) { Shape::Text } else { Shape::Any };
                let mut good = true;
                for entry in entries {
                    if has_templates(&entry.key) {
                        let message = "the name of a field cannot be a template";
                        self.problems.add(entry.position, code::INVALID_TEMPLATE, path.field(&entry.key), message);
                        good = false;
                    }
                    good &= self.check_shape(&entry.value, element, path.field(&entry.key), site, holes);
                }
                good
            }
            (Data::Map(entries), Shape::Fields(fields)) => {
                let before = self.problems.count();
                let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
                self.known_fields(entries, path, &names);
                for entry in entries {
                    if let Some((_, shape)) = fields.iter().find(|(name, _)| *name == entry.key) {
                        self.check_shape(&entry.value, *shape, path.field(&entry.key), site, holes);
                    }
                }
                self.problems.count() == before
            }
            (_, shape) => {
                self.wrong_type(node, path, shape.expected());
                false
            }
        }
    }

    fn add_hole(
        &mut self,
        node: &Node<'_>,
        text: &str,
        shape: Shape,
        path: FieldPath<'_>,
        site: &mut TemplateSite<'_>,
        holes: &mut Holes<'_>,
    ) -> bool {
        let Some((template, kind)) = self.template(node, text, path, site) else {
            return false;
        };
        if !kind.may_be(shape.kind()) {
            let message = format!("expected {}, but the template evaluates to {}", shape.expected(), kind.describe());
            self.problems.add(node.position, code::WRONG_TYPE, path, message);
            return false;
        }
        let (start, end) = (holes.offset(node.span.0), holes.offset(node.span.1));
        holes.list.push(Hole { start, end, as_text: shape.is_text(), template });
        true
    }

    fn check_keyword(
        &mut self,
        node: &Node<'_>,
        text: &str,
        keywords: &'static [&'static str],
        path: FieldPath<'_>,
    ) -> bool {
        if keywords.contains(&text) {
            return true;
        }
        let suggestion = closest(text, keywords.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        let start: String = text.chars().take(60).collect();
        let message = format!("`{start}` is not one of: {}", keywords.join(", "));
        self.problems.add_with_suggestion(node.position, code::INVALID_VALUE, path, message, suggestion);
        false
    }
}
