//! Syntax tree of a definition. Each value has its position in the text.
//!
//! YAML and JSON are parsed into the same tree. [`normalise`] writes it as compact JSON, which is stored, and records
//! the span of each value in that JSON.

mod duplicates;
pub(crate) mod json;
mod write;
pub(crate) mod yaml;

use std::borrow::Cow;

use serde_json::Number;

use crate::diagnostic::Position;

pub(crate) use duplicates::refuse_duplicates;
pub(crate) use write::normalise;

/// A value with its position.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    pub data: Data<'a>,
    pub position: Position,
    /// Start and end offset in the normalised text.
    pub span: (u32, u32),
}

#[derive(Debug, Clone)]
pub(crate) enum Data<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Map(Vec<MapEntry<'a>>),
}

/// One field of an object.
#[derive(Debug, Clone)]
pub(crate) struct MapEntry<'a> {
    pub key: Cow<'a, str>,
    pub position: Position,
    pub value: Node<'a>,
}

impl<'a> Node<'a> {
    pub fn new(data: Data<'a>, position: Position) -> Self {
        Self { data, position, span: (0, 0) }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.data {
            Data::Text(text) => Some(text),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::List(_) | Data::Map(_) => None,
        }
    }

    /// Value of a field.
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        match &self.data {
            Data::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => None,
        }
    }

    /// Type with its article, for messages.
    pub fn kind(&self) -> &'static str {
        match self.data {
            Data::Null => "null",
            Data::Bool(_) => "a boolean",
            Data::Number(_) => "a number",
            Data::Text(_) => "a string",
            Data::List(_) => "a list",
            Data::Map(_) => "an object",
        }
    }

    pub fn to_value(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(truth) => Value::Bool(*truth),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.to_string()),
            Data::List(nodes) => Value::Array(nodes.iter().map(Node::to_value).collect()),
            Data::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_value())).collect())
            }
        }
    }
}
