//! YAML 1.2 reader with the core schema. Expands anchors, aliases and `<<`, within limits.

use std::borrow::Cow;

use foldhash::fast::RandomState;
use granit_parser::{Event, Marker, Options, Parser, ScalarStyle, ScanError, Tag};
use hashbrown::{HashMap, HashSet};
use serde_json::Number;

use super::{Data, MapEntry, Node};
use crate::diagnostic::{Position, Problems, code};
use crate::limits;

const MERGE_KEY: &str = "<<";

/// Parses a definition.
pub(crate) fn read<'a>(text: &'a str, problems: &mut Problems) -> Option<Node<'a>> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = limits::DEPTH_MAX + 1;
    options.block_nesting_limit = limits::DEPTH_MAX + 1;
    let mut reader = YamlReader::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let read = next.map_err(|error| syntax(&error, text)).and_then(|(event, span)| reader.event(event, span.start));
        if let Err(error) = read {
            problems.add_with_suggestion(error.position, error.code, "", error.message, error.suggestion);
            return None;
        }
    }
    if reader.root.is_none() {
        problems.add(Position { line: 1, column: 1 }, code::SYNTAX, "", "the definition is empty");
    }
    reader.root
}

struct ReadError {
    position: Position,
    code: &'static str,
    message: String,
    suggestion: Option<String>,
}

impl ReadError {
    fn syntax(position: Position, message: impl Into<String>) -> Self {
        Self { position, code: code::SYNTAX, message: message.into(), suggestion: None }
    }

    fn too_large(position: Position, message: String) -> Self {
        Self { position, code: code::TOO_LARGE, message, suggestion: None }
    }
}

/// Syntax error, with a hint at the most frequent cause: a template without quotes.
fn syntax(error: &ScanError, text: &str) -> ReadError {
    let position = position(*error.marker());
    let message = format!("this is not YAML: {}", error.kind());
    let lines = text.lines().skip(position.line.saturating_sub(2) as usize).take(2);
    let suggestion = lines.into_iter().any(|line| line.contains("${")).then(|| {
        "put a string with `${…}` in quotes: YAML requires them inside `{…}` and `[…]`, and around `: ` and ` #`"
            .to_owned()
    });
    ReadError { position, code: code::SYNTAX, message, suggestion }
}

fn position(marker: Marker) -> Position {
    let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    Position { line: number(marker.line()), column: number(marker.col()).saturating_add(1) }
}

/// A list or object that is still being read.
enum OpenCollection<'a> {
    List {
        nodes: Vec<Node<'a>>,
        position: Position,
        anchor: usize,
    },
    Map {
        entries: Vec<MapEntry<'a>>,
        key: Option<(Cow<'a, str>, Position)>,
        merges: Vec<Node<'a>>,
        position: Position,
        anchor: usize,
    },
}

#[derive(Default)]
struct YamlReader<'a> {
    open: Vec<OpenCollection<'a>>,
    anchors: HashMap<usize, Anchored<'a>, RandomState>,
    root: Option<Node<'a>>,
    nodes: usize,
}

impl<'a> YamlReader<'a> {
    fn event(&mut self, event: Event<'a>, start: Marker) -> Result<(), ReadError> {
        let position = position(start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.awaits_key() {
                    return self.key(text, position, anchor);
                }
                let data =
                    scalar(text, style, tag.as_deref()).map_err(|message| ReadError::syntax(position, message))?;
                self.node(Node::new(data, position), anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(OpenCollection::List { nodes: Vec::new(), position, anchor }, position)
            }
            Event::MappingStart(_, anchor, _) => self.begin(
                OpenCollection::Map { entries: Vec::new(), key: None, merges: Vec::new(), position, anchor },
                position,
            ),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => {
                let Some(anchored) = self.anchors.get(&id) else {
                    return Err(ReadError::syntax(position, "the alias refers to the value that contains it"));
                };
                self.nodes += anchored.nodes;
                if self.open.len() + anchored.depth > limits::DEPTH_MAX {
                    return Err(too_deep(position));
                }
                if self.nodes > limits::NODES_MAX {
                    return Err(too_many(position));
                }
                let node = anchored.node.clone();
                if self.awaits_key() {
                    return match node.data {
                        Data::Text(text) => self.key(text, position, 0),
                        _ => Err(ReadError::syntax(position, "the name of a field must be a string")),
                    };
                }
                self.node(node, 0)
            }
            Event::DocumentStart(..) if self.root.is_some() => Err(ReadError::syntax(
                position,
                "a second document starts here: a definition must be a single document",
            )),
            Event::UnresolvedAlias(name) => Err(ReadError::syntax(position, format!("there is no anchor `{name}`"))),
            // Stream markers, and comments, which are disabled.
            _ => Ok(()),
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(self.open.last(), Some(OpenCollection::Map { key: None, .. }))
    }

    fn key(&mut self, text: Cow<'a, str>, position: Position, anchor: usize) -> Result<(), ReadError> {
        if anchor > 0 {
            self.anchors.insert(anchor, Anchored::new(Node::new(Data::Text(text.clone()), position)));
        }
        if let Some(OpenCollection::Map { key, .. }) = self.open.last_mut() {
            *key = Some((text, position));
        }
        Ok(())
    }

    fn begin(&mut self, open: OpenCollection<'a>, position: Position) -> Result<(), ReadError> {
        if self.awaits_key() {
            return Err(ReadError::syntax(position, "the name of a field must be a string, not a list or an object"));
        }
        if self.open.len() >= limits::DEPTH_MAX {
            return Err(too_deep(position));
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), ReadError> {
        match self.open.pop() {
            Some(OpenCollection::List { nodes, position, anchor }) => {
                self.node(Node::new(Data::List(nodes), position), anchor)
            }
            Some(OpenCollection::Map { mut entries, merges, position, anchor, .. }) => {
                if !merges.is_empty() {
                    let mut known = entries.iter().map(|entry| entry.key.clone()).collect();
                    merges.into_iter().try_for_each(|merged| self.merge(&mut entries, &mut known, merged))?;
                }
                self.node(Node::new(Data::Map(entries), position), anchor)
            }
            None => Ok(()),
        }
    }

    /// `<<: *base`: adds the fields of `base` that the object lacks.
    fn merge(
        &mut self,
        entries: &mut Vec<MapEntry<'a>>,
        known: &mut HashSet<Cow<'a, str>, RandomState>,
        merged: Node<'a>,
    ) -> Result<(), ReadError> {
        match merged.data {
            Data::Map(inherited) => {
                for entry in inherited {
                    if known.insert(entry.key.clone()) {
                        entries.push(entry);
                    }
                }
                Ok(())
            }
            Data::List(nodes) => nodes.into_iter().try_for_each(|node| self.merge(entries, known, node)),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => {
                Err(ReadError::syntax(merged.position, "`<<` takes an object, or a list of objects"))
            }
        }
    }

    /// Adds a complete value to its parent.
    fn node(&mut self, node: Node<'a>, anchor: usize) -> Result<(), ReadError> {
        self.nodes += 1;
        if self.nodes > limits::NODES_MAX {
            return Err(too_many(node.position));
        }
        if anchor > 0 {
            let anchored = Anchored::new(node.clone());
            self.nodes += anchored.nodes;
            self.anchors.insert(anchor, anchored);
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(OpenCollection::List { nodes, .. }) => nodes.push(node),
            Some(OpenCollection::Map { entries, key, merges, .. }) => {
                let (key, position) = key.take().expect("a value comes after its key");
                if key == MERGE_KEY {
                    merges.push(node);
                } else {
                    entries.push(MapEntry { key, position, value: node });
                }
            }
        }
        Ok(())
    }
}

fn too_deep(position: Position) -> ReadError {
    ReadError::too_large(position, format!("values are nested more than {} levels deep", limits::DEPTH_MAX))
}

fn too_many(position: Position) -> ReadError {
    let message = format!("the definition has more than {} values, with aliases expanded", limits::NODES_MAX);
    ReadError::too_large(position, message)
}

/// A value with an anchor, `&name`.
struct Anchored<'a> {
    node: Node<'a>,
    nodes: usize,
    depth: usize,
}

impl<'a> Anchored<'a> {
    fn new(node: Node<'a>) -> Self {
        let (nodes, depth) = size(&node);
        Self { node, nodes, depth }
    }
}

/// Number of values, and their nesting depth.
fn size(node: &Node<'_>) -> (usize, usize) {
    let combine = |(nodes, depth): (usize, usize), inner: &Node<'_>| {
        let (inner_nodes, inner_depth) = size(inner);
        (nodes + inner_nodes, depth.max(inner_depth + 1))
    };
    match &node.data {
        Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => (1, 0),
        Data::List(nodes) => nodes.iter().fold((1, 1), combine),
        Data::Map(entries) => entries.iter().map(|entry| &entry.value).fold((1, 1), combine),
    }
}

/// Resolves a scalar by the core schema: only plain scalars can be something other than a string.
fn scalar<'a>(text: Cow<'a, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Data<'a>, String> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema_tag("str") => return Ok(Data::Text(text)),
        Some(tag) if !tag.is_yaml_core_schema() => {
            return Err(format!("the tag `{}` is not supported: remove it", tag.original()));
        }
        Some(_) | None => {}
    }
    if style != ScalarStyle::Plain {
        return Ok(Data::Text(text));
    }
    Ok(match &*text {
        "" | "~" | "null" | "Null" | "NULL" => Data::Null,
        "true" | "True" | "TRUE" => Data::Bool(true),
        "false" | "False" | "FALSE" => Data::Bool(false),
        plain => match number(plain)? {
            Some(number) => Data::Number(number),
            None => Data::Text(text),
        },
    })
}

fn number(text: &str) -> Result<Option<Number>, String> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("`{text}` cannot be represented in JSON: put it in quotes if it is a string"));
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return Ok(u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')).map(Number::from));
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return Ok(u64::from_str_radix(digits, 8).ok().filter(|_| !digits.starts_with('+')).map(Number::from));
    }
    let is_numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.bytes().any(|byte| byte.is_ascii_digit())
        && unsigned.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    if !is_numeric {
        return Ok(None);
    }
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(Some(integer.into()));
    }
    if let Ok(integer) = text.parse::<u64>() {
        return Ok(Some(integer.into()));
    }
    match text.parse::<f64>() {
        Ok(float) => match Number::from_f64(float) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("`{text}` is too large for a number: put it in quotes if it is a string")),
        },
        Err(_) => Ok(None),
    }
}
