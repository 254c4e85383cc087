//! What the fields of a job look like, and where templates stand in them.

use super::Compiler;
use super::templates::Site;
use crate::diagnostic::{closest, code};
use crate::expression::Type;
use crate::node::{Data, Node};
use crate::path::Path;
use crate::template::{Hole, has_templates};

/// The form of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Any,
    Text,
    /// Not negative.
    Integer,
    Word(&'static [&'static str]),
    Texts,
    TextMap,
    /// An object of these fields.
    Fields(&'static [(&'static str, Shape)]),
}

impl Shape {
    /// In words for a message.
    fn wanted(self) -> &'static str {
        match self {
            Self::Any => "a value",
            Self::Text | Self::Word(_) => "a text",
            Self::Integer => "a whole number",
            Self::Texts => "a list of texts",
            Self::TextMap => "an object of texts",
            Self::Fields(_) => "an object",
        }
    }

    /// What a template in its place must come to.
    fn kind(self) -> Type {
        match self {
            // Anything can be made a text.
            Self::Any | Self::Text | Self::Word(_) => Type::Unknown,
            Self::Integer => Type::Integer,
            Self::Texts => Type::List,
            Self::TextMap | Self::Fields(_) => Type::Object,
        }
    }

    fn is_text(self) -> bool {
        match self {
            Self::Text | Self::Word(_) => true,
            Self::Any | Self::Integer | Self::Texts | Self::TextMap | Self::Fields(_) => false,
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
pub(super) const ECHO: Shape =
    Shape::Fields(&[("value", Shape::Any), ("delay_ms", Shape::Integer), ("fail", Shape::Word(&["error", "fatal"]))]);
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

/// Holes are counted from where the text begins that they are in.
pub(super) struct Holes<'h> {
    pub list: &'h mut Vec<Hole>,
    /// What is added to a place in the source to get one in that text.
    pub shift: i64,
}

impl Holes<'_> {
    fn offset(&self, source: u32) -> u32 {
        u32::try_from(i64::from(source) + self.shift).expect("a hole lies within its text")
    }
}

impl Compiler {
    /// Checks a value and finds its templates. False if something is wrong with it.
    pub(super) fn shaped(
        &mut self,
        node: &Node<'_>,
        shape: Shape,
        path: Path<'_>,
        site: &mut Site<'_>,
        holes: &mut Holes<'_>,
    ) -> bool {
        match (&node.data, shape) {
            (Data::Text(text), shape) if has_templates(text) => self.hole(node, text, shape, path, site, holes),
            (Data::Text(_), Shape::Text | Shape::Any) => true,
            (Data::Text(text), Shape::Word(words)) => self.word(node, text, words, path),
            (Data::Number(number), Shape::Integer) => {
                if number.as_u64().is_none() {
                    let message = format!("{number} is not possible: a whole number from 0 is");
                    self.problems.add(node.place, code::INVALID_VALUE, path, message);
                }
                number.as_u64().is_some()
            }
            (Data::Null | Data::Bool(_) | Data::Number(_), Shape::Any) => true,
            (Data::List(nodes), Shape::Any | Shape::Texts) => {
                let element = if matches!(shape, Shape::Texts) { Shape::Text } else { Shape::Any };
                let mut good = true;
                for (at, node) in nodes.iter().enumerate() {
                    good &= self.shaped(node, element, path.element(at), site, holes);
                }
                good
            }
            (Data::Map(entries), Shape::Any | Shape::TextMap) => {
                let element = if matches!(shape, Shape::TextMap) { Shape::Text } else { Shape::Any };
                let mut good = true;
                for entry in entries {
                    if has_templates(&entry.key) {
                        let message = "the name of a field cannot be a template";
                        self.problems.add(entry.place, code::INVALID_TEMPLATE, path.field(&entry.key), message);
                        good = false;
                    }
                    good &= self.shaped(&entry.value, element, path.field(&entry.key), site, holes);
                }
                good
            }
            (Data::Map(entries), Shape::Fields(fields)) => {
                let before = self.problems.count();
                let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
                self.known_fields(entries, path, &names);
                for entry in entries {
                    if let Some((_, shape)) = fields.iter().find(|(name, _)| *name == entry.key) {
                        self.shaped(&entry.value, *shape, path.field(&entry.key), site, holes);
                    }
                }
                self.problems.count() == before
            }
            (_, shape) => {
                self.wrong_type(node, path, shape.wanted());
                false
            }
        }
    }

    fn hole(
        &mut self,
        node: &Node<'_>,
        text: &str,
        shape: Shape,
        path: Path<'_>,
        site: &mut Site<'_>,
        holes: &mut Holes<'_>,
    ) -> bool {
        let Some((template, kind)) = self.template(node, text, path, site) else {
            return false;
        };
        if !kind.may_be(shape.kind()) {
            let message = format!("this comes to {}: {} is needed", kind.shown(), shape.wanted());
            self.problems.add(node.place, code::WRONG_TYPE, path, message);
            return false;
        }
        let (start, end) = (holes.offset(node.span.0), holes.offset(node.span.1));
        holes.list.push(Hole { start, end, as_text: shape.is_text(), template });
        true
    }

    fn word(&mut self, node: &Node<'_>, text: &str, words: &'static [&'static str], path: Path<'_>) -> bool {
        if words.contains(&text) {
            return true;
        }
        let suggestion = closest(text, words.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        let start: String = text.chars().take(60).collect();
        let message = format!("`{start}` is none of: {}", words.join(", "));
        self.problems.advise(node.place, code::INVALID_VALUE, path, message, suggestion);
        false
    }
}
