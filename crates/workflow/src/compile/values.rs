//! Plain values of a definition: what they must be, and what is said where they are something else.

use model::time::Millis;

use super::Compiler;
use crate::delay::parse_duration;
use crate::diagnostic::{closest, code};
use crate::limits;
use crate::node::{Data, Entry, Node};
use crate::path::Path;

impl Compiler {
    pub(super) fn wrong_type(&mut self, node: &Node<'_>, path: Path<'_>, wanted: &str) {
        let message = match node.data {
            Data::Null => format!("nothing is given: {wanted} is needed"),
            _ => format!("this is {}: {wanted} is needed", node.kind()),
        };
        let suggestion = match &node.data {
            Data::Null => Some("leave the field out, or give it a value".to_owned()),
            Data::Number(number) if wanted == "a text" => Some(format!("put it into quotes: \"{number}\"")),
            Data::Bool(truth) if wanted == "a text" => Some(format!("put it into quotes: \"{truth}\"")),
            Data::Number(_) | Data::Bool(_) | Data::Text(_) | Data::List(_) | Data::Map(_) => None,
        };
        self.problems.advise(node.place, code::WRONG_TYPE, path, message, suggestion);
    }

    /// The fields of an object.
    pub(super) fn map<'n, 'a>(&mut self, node: &'n Node<'a>, path: Path<'_>, wanted: &str) -> Option<&'n [Entry<'a>]> {
        match &node.data {
            Data::Map(entries) => Some(entries),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => {
                self.wrong_type(node, path, wanted);
                None
            }
        }
    }

    /// Refuses fields that have no meaning here.
    pub(super) fn known_fields(&mut self, entries: &[Entry<'_>], path: Path<'_>, known: &[&str]) {
        for entry in entries {
            if !known.contains(&&*entry.key) {
                let names = if self.problems.are_many() { &[] } else { known };
                let near = closest(&entry.key, names.iter().copied());
                let suggestion = near.map_or_else(
                    || (known.len() <= 12).then(|| format!("there is: {}", known.join(", "))),
                    |near| Some(format!("did you mean `{near}`?")),
                );
                let message = "there is no such field";
                self.problems.advise(entry.place, code::UNKNOWN_FIELD, path.field(&entry.key), message, suggestion);
            }
        }
    }

    pub(super) fn text<'n>(&mut self, node: &'n Node<'_>, path: Path<'_>) -> Option<&'n str> {
        let text = node.text();
        if text.is_none() {
            self.wrong_type(node, path, "a text");
        }
        text
    }

    /// A name of a workflow, task, input, epoch or signal.
    pub(super) fn name<'n>(&mut self, node: &'n Node<'_>, path: Path<'_>) -> Option<&'n str> {
        let name = self.text(node, path)?;
        self.valid_name(name, node.place, path).then_some(name)
    }

    pub(super) fn valid_name(&mut self, name: &str, place: crate::diagnostic::Place, path: Path<'_>) -> bool {
        let refusal = if name.is_empty() {
            "a name cannot be empty".to_owned()
        } else if name.len() > limits::NAME_BYTES_MAX {
            format!("a name of {} bytes is too long: at most {}", name.len(), limits::NAME_BYTES_MAX)
        } else if let Some(other) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.')) {
            format!("`{}` cannot be in a name: letters, digits, `-`, `_` and `.` can", other.escape_debug())
        } else {
            return true;
        };
        self.problems.add(place, code::INVALID_NAME, path, refusal);
        false
    }

    pub(super) fn description(&mut self, node: &Node<'_>, path: Path<'_>) -> Option<Box<str>> {
        let text = self.text(node, path)?;
        if text.len() > limits::DESCRIPTION_BYTES_MAX {
            let message = format!("{} bytes are too long: at most {}", text.len(), limits::DESCRIPTION_BYTES_MAX);
            self.problems.add(node.place, code::TOO_LARGE, path, message);
            return None;
        }
        Some(text.into())
    }

    /// A duration that is not zero.
    pub(super) fn timeout(&mut self, node: &Node<'_>, path: Path<'_>) -> Option<Millis> {
        let duration = self.duration(node, path)?;
        if duration.0 == 0 {
            self.problems.add(node.place, code::INVALID_VALUE, path, "with 0 nothing could ever end in time");
            return None;
        }
        Some(duration)
    }

    pub(super) fn duration(&mut self, node: &Node<'_>, path: Path<'_>) -> Option<Millis> {
        match &node.data {
            Data::Text(text) => match parse_duration(text) {
                Ok(duration) => Some(duration),
                Err(message) => {
                    self.problems.add(node.place, code::INVALID_VALUE, path, message);
                    None
                }
            },
            Data::Number(number) => {
                let message = "a duration needs a unit";
                let suggestion = Some(format!("write `{number}s` for seconds, `{number}ms` for milliseconds"));
                self.problems.advise(node.place, code::WRONG_TYPE, path, message, suggestion);
                None
            }
            Data::Null | Data::Bool(_) | Data::List(_) | Data::Map(_) => {
                self.wrong_type(node, path, "a duration like `90s`");
                None
            }
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(&mut self, node: &Node<'_>, path: Path<'_>, least: u32, most: u32) -> Option<u32> {
        let Data::Number(number) = &node.data else {
            self.wrong_type(node, path, "a number");
            return None;
        };
        let found = number.as_u64().and_then(|number| u32::try_from(number).ok());
        let within = found.filter(|number| (least..=most).contains(number));
        if within.is_none() {
            let message = format!("{number} is not possible: a whole number from {least} to {most} is");
            self.problems.add(node.place, code::INVALID_VALUE, path, message);
        }
        within
    }

    /// One of a few words.
    pub(super) fn one_of<T: Copy>(&mut self, node: &Node<'_>, path: Path<'_>, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(node, path)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let all = words.iter().map(|(word, _)| *word);
            let suggestion = closest(text, all.clone()).map(|near| format!("did you mean `{near}`?"));
            let start: String = text.chars().take(60).collect();
            let message = format!("`{start}` is none of: {}", all.collect::<Vec<_>>().join(", "));
            self.problems.advise(node.place, code::INVALID_VALUE, path, message, suggestion);
        }
        found
    }

    /// One text, or a list of texts.
    pub(super) fn texts<'n>(
        &mut self,
        node: &'n Node<'_>,
        path: Path<'_>,
        wanted: &str,
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
                self.wrong_type(node, path, wanted);
                Vec::new()
            }
        }
    }
}
