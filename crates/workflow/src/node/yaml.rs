//! Reads YAML 1.2 with its core schema. Anchors, aliases and `<<` are written out, within limits.

use std::borrow::Cow;

use foldhash::fast::RandomState;
use granit_parser::{Event, Marker, Options, Parser, ScalarStyle, ScanError, Tag};
use hashbrown::{HashMap, HashSet};
use serde_json::Number;

use super::{Data, Entry, Node};
use crate::diagnostic::{Place, Problems, code};
use crate::limits;

const MERGE_KEY: &str = "<<";

/// Reads a definition.
pub(crate) fn read<'a>(text: &'a str, problems: &mut Problems) -> Option<Node<'a>> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = limits::DEPTH_MAX + 1;
    options.block_nesting_limit = limits::DEPTH_MAX + 1;
    let mut reading = Reading::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let read =
            next.map_err(|error| syntax(&error, text)).and_then(|(event, span)| reading.event(event, span.start));
        if let Err(refused) = read {
            problems.advise(refused.place, refused.code, "", refused.message, refused.suggestion);
            return None;
        }
    }
    if reading.root.is_none() {
        problems.add(Place { line: 1, column: 1 }, code::SYNTAX, "", "there is nothing in it");
    }
    reading.root
}

struct Refused {
    place: Place,
    code: &'static str,
    message: String,
    suggestion: Option<String>,
}

impl Refused {
    fn syntax(place: Place, message: impl Into<String>) -> Self {
        Self { place, code: code::SYNTAX, message: message.into(), suggestion: None }
    }

    fn too_large(place: Place, message: String) -> Self {
        Self { place, code: code::TOO_LARGE, message, suggestion: None }
    }
}

/// What the parser says, and what it most often means in a workflow: a template without quotes.
fn syntax(error: &ScanError, text: &str) -> Refused {
    let place = place(*error.marker());
    let message = format!("this is not YAML: {}", error.kind());
    let lines = text.lines().skip(place.line.saturating_sub(2) as usize).take(2);
    let suggestion = lines.into_iter().any(|line| line.contains("${")).then(|| {
        "put a text with `${…}` into quotes: inside `{…}` or `[…]`, and where it contains `: ` or ` #`, \
         YAML does not take it for a text otherwise"
            .to_owned()
    });
    Refused { place, code: code::SYNTAX, message, suggestion }
}

fn place(marker: Marker) -> Place {
    let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    Place { line: number(marker.line()), column: number(marker.col()).saturating_add(1) }
}

/// A list or an object that has begun.
enum Open<'a> {
    List {
        nodes: Vec<Node<'a>>,
        place: Place,
        anchor: usize,
    },
    Map {
        entries: Vec<Entry<'a>>,
        key: Option<(Cow<'a, str>, Place)>,
        merges: Vec<Node<'a>>,
        place: Place,
        anchor: usize,
    },
}

#[derive(Default)]
struct Reading<'a> {
    open: Vec<Open<'a>>,
    anchors: HashMap<usize, Anchored<'a>, RandomState>,
    root: Option<Node<'a>>,
    nodes: usize,
}

impl<'a> Reading<'a> {
    fn event(&mut self, event: Event<'a>, start: Marker) -> Result<(), Refused> {
        let place = place(start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.awaits_key() {
                    return self.key(text, place, anchor);
                }
                let data = scalar(text, style, tag.as_deref()).map_err(|message| Refused::syntax(place, message))?;
                self.node(Node::new(data, place), anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(Open::List { nodes: Vec::new(), place, anchor }, place),
            Event::MappingStart(_, anchor, _) => {
                self.begin(Open::Map { entries: Vec::new(), key: None, merges: Vec::new(), place, anchor }, place)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => {
                let Some(anchored) = self.anchors.get(&id) else {
                    return Err(Refused::syntax(place, "an alias stands inside of what it names"));
                };
                self.nodes += anchored.nodes;
                if self.open.len() + anchored.depth > limits::DEPTH_MAX {
                    return Err(too_deep(place));
                }
                if self.nodes > limits::NODES_MAX {
                    return Err(too_many(place));
                }
                let node = anchored.node.clone();
                if self.awaits_key() {
                    return match node.data {
                        Data::Text(text) => self.key(text, place, 0),
                        _ => Err(Refused::syntax(place, "the name of a field must be a text")),
                    };
                }
                self.node(node, 0)
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(Refused::syntax(place, "a second document begins here: a definition is one"))
            }
            Event::UnresolvedAlias(name) => Err(Refused::syntax(place, format!("there is no anchor `{name}`"))),
            // The stream's own marks, and what is switched off.
            _ => Ok(()),
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Map { key: None, .. }))
    }

    fn key(&mut self, text: Cow<'a, str>, place: Place, anchor: usize) -> Result<(), Refused> {
        if anchor > 0 {
            self.anchors.insert(anchor, Anchored::new(Node::new(Data::Text(text.clone()), place)));
        }
        if let Some(Open::Map { key, .. }) = self.open.last_mut() {
            *key = Some((text, place));
        }
        Ok(())
    }

    fn begin(&mut self, open: Open<'a>, place: Place) -> Result<(), Refused> {
        if self.awaits_key() {
            return Err(Refused::syntax(place, "the name of a field must be a text, this is a list or an object"));
        }
        if self.open.len() >= limits::DEPTH_MAX {
            return Err(too_deep(place));
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refused> {
        match self.open.pop() {
            Some(Open::List { nodes, place, anchor }) => self.node(Node::new(Data::List(nodes), place), anchor),
            Some(Open::Map { mut entries, merges, place, anchor, .. }) => {
                if !merges.is_empty() {
                    let mut known = entries.iter().map(|entry| entry.key.clone()).collect();
                    merges.into_iter().try_for_each(|merged| self.merge(&mut entries, &mut known, merged))?;
                }
                self.node(Node::new(Data::Map(entries), place), anchor)
            }
            None => Ok(()),
        }
    }

    /// `<<: *base`: what `base` has and the object does not.
    fn merge(
        &mut self,
        entries: &mut Vec<Entry<'a>>,
        known: &mut HashSet<Cow<'a, str>, RandomState>,
        merged: Node<'a>,
    ) -> Result<(), Refused> {
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
                Err(Refused::syntax(merged.place, "`<<` takes an object, or a list of objects"))
            }
        }
    }

    /// A complete value goes where it belongs.
    fn node(&mut self, node: Node<'a>, anchor: usize) -> Result<(), Refused> {
        self.nodes += 1;
        if self.nodes > limits::NODES_MAX {
            return Err(too_many(node.place));
        }
        if anchor > 0 {
            let anchored = Anchored::new(node.clone());
            self.nodes += anchored.nodes;
            self.anchors.insert(anchor, anchored);
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { nodes, .. }) => nodes.push(node),
            Some(Open::Map { entries, key, merges, .. }) => {
                let (key, place) = key.take().expect("a value comes after its key");
                if key == MERGE_KEY {
                    merges.push(node);
                } else {
                    entries.push(Entry { key, place, value: node });
                }
            }
        }
        Ok(())
    }
}

fn too_deep(place: Place) -> Refused {
    Refused::too_large(place, format!("values are nested deeper than {}", limits::DEPTH_MAX))
}

fn too_many(place: Place) -> Refused {
    let message = format!("more than {} values are in it, aliases written out", limits::NODES_MAX);
    Refused::too_large(place, message)
}

/// A value with `&name` before it.
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

/// How many values there are in it, and how deep they go.
fn size(node: &Node<'_>) -> (usize, usize) {
    let together = |(nodes, depth): (usize, usize), inner: &Node<'_>| {
        let (inner_nodes, inner_depth) = size(inner);
        (nodes + inner_nodes, depth.max(inner_depth + 1))
    };
    match &node.data {
        Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => (1, 0),
        Data::List(nodes) => nodes.iter().fold((1, 1), together),
        Data::Map(entries) => entries.iter().map(|entry| &entry.value).fold((1, 1), together),
    }
}

/// A scalar by the core schema: only a plain one can be anything but a text.
fn scalar<'a>(text: Cow<'a, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Data<'a>, String> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema_tag("str") => return Ok(Data::Text(text)),
        Some(tag) if !tag.is_yaml_core_schema() => {
            return Err(format!("the tag `{}` means nothing here: leave it out", tag.original()));
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
        return Err(format!("`{text}` cannot be said in JSON: put it into quotes if it is a text"));
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return Ok(u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')).map(Number::from));
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return Ok(u64::from_str_radix(digits, 8).ok().filter(|_| !digits.starts_with('+')).map(Number::from));
    }
    let looks_like_one = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.bytes().any(|byte| byte.is_ascii_digit())
        && unsigned.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    if !looks_like_one {
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
            None => Err(format!("`{text}` is too large for a number: put it into quotes if it is a text")),
        },
        Err(_) => Ok(None),
    }
}
