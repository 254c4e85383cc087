//! JSON reader. Strings without escapes are borrowed, and their address gives their position.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::{Data, MapEntry, Node};
use crate::diagnostic::{Position, Problems, code};
use crate::limits;

/// Parses a definition.
pub(crate) fn read<'a>(source: &'a [u8], problems: &mut Problems) -> Option<Node<'a>> {
    let text = match std::str::from_utf8(source) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("the text is not UTF-8: byte {} is not part of a character", error.valid_up_to());
            problems.add(Position::default(), code::SYNTAX, "", message);
            return None;
        }
    };
    let reader = JsonReader { text, cursor: Cell::default(), nodes: Cell::new(0), is_too_large: Cell::new(false) };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = NodeSeed { reader: &reader, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|node| deserializer.end().map(|()| node));
    match read {
        Ok(node) => Some(node),
        Err(error) => {
            let position = Position { line: number(error.line()), column: number(error.column()) };
            let code = if reader.is_too_large.get() { code::TOO_LARGE } else { code::SYNTAX };
            let message = error.to_string();
            // The diagnostic has its own position.
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
            let before = if code == code::SYNTAX { "this is not JSON: " } else { "" };
            problems.add(position, code, "", format!("{before}{message}"));
            None
        }
    }
}

fn number(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

struct JsonReader<'a> {
    text: &'a str,
    /// Last computed position: offset, line and column, from 0.
    cursor: Cell<(usize, u32, u32)>,
    nodes: Cell<usize>,
    is_too_large: Cell<bool>,
}

impl<'a> JsonReader<'a> {
    /// Position of a borrowed part of the text. Called in the order of the text, so that counting continues from the
    /// cursor.
    fn position(&self, part: &str) -> Position {
        let (offset, mut line, mut column) = self.cursor.get();
        let begin = (part.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        // The string starts at the quote before it.
        let at = begin.wrapping_sub(1);
        if let Some(between) = self.text.get(offset..at) {
            for byte in between.bytes() {
                if byte == b'\n' {
                    (line, column) = (line + 1, 0);
                } else if byte & 0b1100_0000 != 0b1000_0000 {
                    // First byte of a character.
                    column += 1;
                }
            }
            self.cursor.set((at, line, column));
        }
        self.here()
    }

    fn too_large<E: serde::de::Error>(&self, message: String) -> E {
        self.is_too_large.set(true);
        E::custom(message)
    }

    fn here(&self) -> Position {
        let (_, line, column) = self.cursor.get();
        Position { line: line + 1, column: column + 1 }
    }
}

#[derive(Clone, Copy)]
struct NodeSeed<'r, 'a> {
    reader: &'r JsonReader<'a>,
    depth: usize,
}

impl<'a> DeserializeSeed<'a> for NodeSeed<'_, 'a> {
    type Value = Node<'a>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Node<'a>, D::Error> {
        let nodes = self.reader.nodes.get() + 1;
        self.reader.nodes.set(nodes);
        if nodes > limits::NODES_MAX {
            return Err(self.reader.too_large(format!("the definition has more than {} values", limits::NODES_MAX)));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'r, 'a> NodeSeed<'r, 'a> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= limits::DEPTH_MAX {
            return Err(self
                .reader
                .too_large(format!("values are nested more than {} levels deep", limits::DEPTH_MAX)));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn node(self, data: Data<'a>) -> Node<'a> {
        Node::new(data, self.reader.here())
    }
}

impl<'a> Visitor<'a> for NodeSeed<'_, 'a> {
    type Value = Node<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node<'a>, E> {
        Ok(self.node(Data::Null))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Node<'a>, E> {
        Ok(self.node(Data::Bool(truth)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node<'a>, E> {
        Ok(self.node(Data::Number(number.into())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node<'a>, E> {
        Ok(self.node(Data::Number(number.into())))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Node<'a>, E> {
        let number = Number::from_f64(number).ok_or_else(|| E::custom("a number is not finite"))?;
        Ok(self.node(Data::Number(number)))
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Node<'a>, E> {
        Ok(Node::new(Data::Text(Cow::Borrowed(text)), self.reader.position(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node<'a>, E> {
        Ok(self.node(Data::Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<Node<'a>, A::Error> {
        let position = self.reader.here();
        let mut nodes = Vec::new();
        let inner = self.deeper()?;
        while let Some(node) = elements.next_element_seed(inner)? {
            nodes.push(node);
        }
        Ok(Node::new(Data::List(nodes), position))
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<Node<'a>, A::Error> {
        let position = self.reader.here();
        let mut entries = Vec::new();
        let inner = self.deeper()?;
        while let Some(key) = fields.next_key_seed(KeySeed)? {
            let position = match &key {
                Cow::Borrowed(key) => self.reader.position(key),
                Cow::Owned(_) => self.reader.here(),
            };
            let mut value = fields.next_value_seed(inner)?;
            // Other values have no address in the text: they get the position of their name.
            if value.text().is_none() {
                value.position = position;
            }
            entries.push(MapEntry { key, position, value });
        }
        Ok(Node::new(Data::Map(entries), position))
    }
}

struct KeySeed;

impl<'a> DeserializeSeed<'a> for KeySeed {
    type Value = Cow<'a, str>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Cow<'a, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for KeySeed {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
