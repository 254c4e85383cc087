//! Modules and rules with their references, from the parser's syntax tree.

use serde_json::Value;

use crate::error::LoadError;

/// Position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub line: usize,
    pub column: usize,
}

/// One file with rules.
#[derive(Debug)]
pub(crate) struct Module {
    pub file: String,
    pub package: Vec<String>,
    pub package_position: Position,
    /// Imported names.
    pub imports: Vec<(String, Reference)>,
    pub rules: Vec<Rule>,
}

/// Form of a rule head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// `name contains value`
    Set,
    /// `name := value` or `name[key] := value`
    Value,
    /// `default name := value`
    Default,
    /// `name(arguments) := value`
    Function,
}

/// One rule, possibly one of several with the same name.
#[derive(Debug)]
pub(crate) struct Rule {
    pub name: String,
    pub head: Head,
    pub position: Position,
    /// Whether its head is more than a name: `name.more` or `name[more]`.
    pub has_compound_head: bool,
    /// Keys of the object that it adds to a set, if that is an object literal.
    pub object_keys: Vec<String>,
    pub references: Vec<Reference>,
    pub calls: Vec<Call>,
}

/// A reference: `input.job["topic"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    pub base: String,
    /// The literal names after the base, up to the first dynamic one.
    pub path: Vec<String>,
    pub position: Position,
}

impl Reference {
    pub fn dotted(&self) -> String {
        let mut text = self.base.clone();
        for name in &self.path {
            text.push('.');
            text.push_str(name);
        }
        text
    }
}

/// A function call.
#[derive(Debug)]
pub(crate) struct Call {
    pub function: Reference,
    /// The first argument, if it is a string literal.
    pub first_literal: Option<String>,
}

/// Reads the parser's syntax tree.
pub(crate) fn parse(json: &str) -> Result<Vec<Module>, LoadError> {
    let error = |cause: serde_json::Error| LoadError::In {
        file: "the rules".to_owned(),
        message: format!("an expression is nested too deeply ({cause}): split it into named parts"),
    };
    let files: Vec<Value> = serde_json::from_str(json).map_err(error)?;
    Ok(files.iter().map(module).collect())
}

fn module(file: &Value) -> Module {
    let text = file["source"]["contents"].as_str().unwrap_or_default();
    let tree = &file["ast"];
    let package = reference(&tree["package"]["refr"]).map(|(reference, _)| reference);
    let mut names = Vec::new();
    let mut package_position = Position { line: 1, column: 1 };
    if let Some(Reference { base, path, position }) = package {
        names.push(base);
        names.extend(path);
        package_position = position;
    }
    Module {
        file: file["source"]["file"].as_str().unwrap_or_default().to_owned(),
        package: names,
        package_position,
        imports: array(&tree["imports"]).filter_map(|import| imported(import, text)).collect(),
        rules: array(&tree["rules"]).filter_map(rule).collect(),
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn imported(import: &Value, text: &str) -> Option<(String, Reference)> {
    let (reference, _) = reference(&import["refr"])?;
    let offset = |name: &str| usize::try_from(import["as"][name].as_u64()?).ok();
    let alias = offset("start").zip(offset("end")).and_then(|(start, end)| text.get(start..end));
    let name = alias.or(reference.path.last().map(String::as_str)).unwrap_or(&reference.base).to_owned();
    Some((name, reference))
}

fn rule(rule: &Value) -> Option<Rule> {
    let (head, content) = match rule.as_object()?.iter().next()? {
        (kind, content) if kind == "Default" => (Head::Default, content),
        (_, spec) => {
            let (kind, content) = spec["head"].as_object()?.iter().next()?;
            let head = match kind.as_str() {
                "Set" => Head::Set,
                "Func" => Head::Function,
                _ => Head::Value,
            };
            (head, content)
        }
    };
    let (name, keys) = reference(&content["refr"])?;
    let mut collector = Collector::default();
    keys.into_iter().for_each(|key| collector.visit(key));
    // The name of the rule itself is not a reference; everything else may be one.
    content.as_object()?.iter().filter(|(field, _)| *field != "refr").for_each(|(_, value)| collector.visit(value));
    if head != Head::Default {
        collector.visit(&rule.as_object()?.values().next()?["bodies"]);
    }
    let object = &content["key"]["Object"]["fields"];
    Some(Rule {
        has_compound_head: !name.path.is_empty() || content["refr"].get("Var").is_none(),
        name: name.base,
        head,
        position: name.position,
        object_keys: array(object).filter_map(|field| literal(&field[1])).collect(),
        references: collector.references,
        calls: collector.calls,
    })
}

/// Value of a string literal.
fn literal(expression: &Value) -> Option<String> {
    ["String", "RawString"].iter().find_map(|kind| expression.get(kind)?["value"].as_str()).map(str::to_owned)
}

fn position(content: &Value) -> Position {
    let number = |name: &str| content["span"][name].as_u64().and_then(|number| usize::try_from(number).ok());
    Position { line: number("line").unwrap_or(1), column: number("col").unwrap_or(1) }
}

/// The reference in an expression that starts with a name, and its dynamic keys.
fn reference(expression: &Value) -> Option<(Reference, Vec<&Value>)> {
    let (mut parts, mut keys, mut node) = (Vec::new(), Vec::new(), expression);
    let (base, position) = loop {
        if let Some(dot) = node.get("RefDot") {
            parts.push(dot["field"][1].as_str().map(str::to_owned));
            node = &dot["refr"];
        } else if let Some(bracket) = node.get("RefBrack") {
            let known = literal(&bracket["index"]);
            if known.is_none() {
                keys.push(&bracket["index"]);
            }
            parts.push(known);
            node = &bracket["refr"];
        } else {
            let name = node.get("Var")?;
            break (name["value"].as_str()?.to_owned(), position(name));
        }
    };
    let path = parts.into_iter().rev().map_while(|part| part).collect();
    Some((Reference { base, path, position }, keys))
}

/// Collects references and calls.
#[derive(Default)]
struct Collector {
    references: Vec<Reference>,
    calls: Vec<Call>,
}

impl Collector {
    fn visit(&mut self, node: &Value) {
        match node {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            Value::Array(values) => values.iter().for_each(|value| self.visit(value)),
            Value::Object(fields) => {
                if let Some((reference, keys)) = reference(node) {
                    self.references.push(reference);
                    keys.into_iter().for_each(|key| self.visit(key));
                    return;
                }
                if let Some(call) = fields.get("Call")
                    && let Some((function, keys)) = reference(&call["fcn"])
                {
                    self.calls.push(Call { function, first_literal: literal(&call["params"][0]) });
                    keys.into_iter().for_each(|key| self.visit(key));
                    self.visit(&call["params"]);
                    return;
                }
                fields.values().for_each(|value| self.visit(value));
            }
        }
    }
}
