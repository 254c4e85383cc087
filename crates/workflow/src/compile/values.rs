//! Checks plain values of a definition.

use model::time::Millis;

use super::Compiler;
use crate::delay::parse_duration;
use crate::diagnostic::{closest, code};
use crate::limits;
use crate::node::{Data, MapEntry, Node};
use crate::path::FieldPath;

impl Compiler {
    pub(super) fn wrong_type(&mut self, node: &Node<'_>, path: FieldPath<'_>, expected: &str) {
        let message = match node.data {
            Data::Null => format!("expected {expected}, but the value is missing"),
            _ => format!("expected {expected}, found {}", node.kind()),
        };
        let suggestion = match &node.data {
            Data::Null => Some("remove the field, or give it a value".to_owned()),
            Data::Number(number) if expected == "a string" => Some(format!("put it in quotes: \"{number}\"")),
            Data::Bool(truth) if expected == "a string" => Some(format!("put it in quotes: \"{truth}\"")),
            Data::Number(_) | Data::Bool(_) | Data::Text(_) | Data::List(_) | Data::Map(_) => None,
        };
        self.problems.add_with_suggestion(node.position, code::WRONG_TYPE, path, message, suggestion);
    }

    /// Fields of an object.
    pub(super) fn map<'n, 'a>(
        &mut self,
        node: &'n Node<'a>,
        path: FieldPath<'_>,
        expected: &str,
    ) -> Option<&'n [MapEntry<'a>]> {
        match &node.data {
            Data::Map(entries) => Some(entries),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => {
                self.wrong_type(node, path, expected);
                None
            }
        }
    }

    /// Reports unknown fields.
    pub(super) fn known_fields(&mut self, entries: &[MapEntry<'_>], path: FieldPath<'_>, known: &[&str]) {
        for entry in entries {
            if !known.contains(&&*entry.key) {
                let names = if self.problems.skip_suggestions() { &[] } else { known };
                let near = closest(&entry.key, names.iter().copied());
                let suggestion = near.map_or_else(
                    || (known.len() <= 12).then(|| format!("known fields: {}", known.join(", "))),
                    |near| Some(format!("did you mean `{near}`?")),
                );
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
    }

    pub(super) fn text<'n>(&mut self, node: &'n Node<'_>, path: FieldPath<'_>) -> Option<&'n str> {
        let text = node.text();
        if text.is_none() {
            self.wrong_type(node, path, "a string");
        }
        text
    }

    /// Name of a workflow, task, input, epoch or signal.
    pub(super) fn name<'n>(&mut self, node: &'n Node<'_>, path: FieldPath<'_>) -> Option<&'n str> {
        let name = self.text(node, path)?;
        self.valid_name(name, node.position, path).then_some(name)
    }

    pub(super) fn valid_name(
        &mut self,
        name: &str,
        position: crate::diagnostic::Position,
        path: FieldPath<'_>,
    ) -> bool {
        let refusal = if name.is_empty() {
            "a name cannot be empty".to_owned()
        } else if name.len() > limits::NAME_BYTES_MAX {
            format!("the name has {} bytes: at most {} are allowed", name.len(), limits::NAME_BYTES_MAX)
        } else if let Some(other) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.')) {
            format!("a name cannot contain `{}`: only letters, digits, `-`, `_` and `.`", other.escape_debug())
        } else {
            return true;
        };
        self.problems.add(position, code::INVALID_NAME, path, refusal);
        false
    }

    pub(super) fn description(&mut self, node: &Node<'_>, path: FieldPath<'_>) -> Option<Box<str>> {
        let text = self.text(node, path)?;
        if text.len() > limits::DESCRIPTION_BYTES_MAX {
            let message = format!(
                "the description has {} bytes: at most {} are allowed",
                text.len(),
                limits::DESCRIPTION_BYTES_MAX
            );
            self.problems.add(node.position, code::TOO_LARGE, path, message);
            return None;
        }
        Some(text.into())
    }

    /// A positive duration.
    pub(super) fn timeout(&mut self, node: &Node<'_>, path: FieldPath<'_>) -> Option<Millis> {
        let duration = self.duration(node, path)?;
        if duration.0 == 0 {
            self.problems.add(node.position, code::INVALID_VALUE, path, "a timeout must be longer than 0");
            return None;
        }
        Some(duration)
    }

    pub(super) fn duration(&mut self, node: &Node<'_>, path: FieldPath<'_>) -> Option<Millis> {
        match &node.data {
            Data::Text(text) => match parse_duration(text) {
                Ok(duration) => Some(duration),
                Err(message) => {
                    self.problems.add(node.position, code::INVALID_VALUE, path, message);
                    None
                }
            },
            Data::Number(number) => {
                let message = "a duration needs a unit";
                let suggestion = Some(format!("write `{number}s` for seconds, `{number}ms` for milliseconds"));
                self.problems.add_with_suggestion(node.position, code::WRONG_TYPE, path, message, suggestion);
                None
            }
            Data::Null | Data::Bool(_) | Data::List(_) | Data::Map(_) => {
                self.wrong_type(node, path, "a duration such as `90s`");
                None
            }
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(&mut self, node: &Node<'_>, path: FieldPath<'_>, least: u32, most: u32) -> Option<u32> {
        let Data::Number(number) = &node.data else {
            self.wrong_type(node, path, "a number");
            return None;
        };
        let found = number.as_u64().and_then(|number| u32::try_from(number).ok());
        let within = found.filter(|number| (least..=most).contains(number));
        if within.is_none() {
            let message = format!("{number} is invalid: expected a whole number from {least} to {most}");
            self.problems.add(node.position, code::INVALID_VALUE, path, message);
        }
        within
    }

    /// One of a fixed set of keywords.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        node: &Node<'_>,
        path: FieldPath<'_>,
        keywords: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(node, path)?;
        let found = keywords.iter().find(|(keyword, _)| *keyword == text).map(|(_, value)| *value);
        if found.is_none() {
            let all = keywords.iter().map(|(keyword, _)| *keyword);
            let suggestion = closest(text, all.clone()).map(|near| format!("did you mean `{near}`?"));
            let start: String = text.chars().take(60).collect();
            let message = format!("`{start}` is not one of: {}", all.collect::<Vec<_>>().join(", "));
            self.problems.add_with_suggestion(node.position, code::INVALID_VALUE, path, message, suggestion);
        }
        found
    }

    /// A string or a list of strings.
    pub(super) fn texts<'n>(
        &mut self,
        node: &'n Node<'_>,
        path: FieldPath<'_>,
        expected: &str,
    ) -> Vec<(&'n str, &'n Node<'n>)> {
        match &node.data {
            Data::Text(text) => vec![(text, node)],
            Data::List(nodes) => {
                let mut texts = Vec::with_capacity(nodes.len());
                for (at, element) in nodes.iter().enumerate() {
                    if let Some(text) = self.text(element, path.element(at)) {
                        texts.push((text, element));
                    }
                }
                texts
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Map(_) => {
                self.wrong_type(node, path, expected);
                Vec::new()
            }
        }
    }
}
