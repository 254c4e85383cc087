//! The parser's tree, cut into modules and rules, with every reference in them.

use serde_json::Value;

use crate::error::LoadError;

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub line: usize,
    pub column: usize,
}

/// One file with rules.
#[derive(Debug)]
pub(crate) struct Module {
    pub file: String,
    pub package: Vec<String>,
    pub package_place: Place,
    /// What names stand for, by imports.
    pub imports: Vec<(String, Reference)>,
    pub rules: Vec<Rule>,
}

/// How a rule gives its value.
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

/// One rule, or one of several with the same name.
#[derive(Debug)]
pub(crate) struct Rule {
    pub name: String,
    pub head: Head,
    pub place: Place,
    /// Whether its head is more than a name: `name.more` or `name[more]`.
    pub has_longer_head: bool,
    /// The names in the object that it adds to a set, where it adds one that is written out.
    pub object_keys: Vec<String>,
    pub references: Vec<Reference>,
    pub calls: Vec<Call>,
}

/// A name with what follows it: `input.job["topic"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    pub base: String,
    /// The names that follow, up to the first that is only known when the rule is run.
    pub path: Vec<String>,
    pub place: Place,
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

/// A call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    pub function: Reference,
    /// The first argument, if it is a text that is written out.
    pub first_text: Option<String>,
}

/// Reads the tree that the parser has written.
pub(crate) fn parse(json: &str) -> Result<Vec<Module>, LoadError> {
    let wrong = |error: serde_json::Error| LoadError::In {
        file: "the rules".to_owned(),
        message: format!("an expression is nested too deeply ({error}): give parts of it a name of their own"),
    };
    let files: Vec<Value> = serde_json::from_str(json).map_err(wrong)?;
    Ok(files.iter().map(module).collect())
}

fn module(file: &Value) -> Module {
    let text = file["source"]["contents"].as_str().unwrap_or_default();
    let tree = &file["ast"];
    let package = reference(&tree["package"]["refr"]).map(|(reference, _)| reference);
    let mut names = Vec::new();
    let mut package_place = Place { line: 1, column: 1 };
    if let Some(Reference { base, path, place }) = package {
        names.push(base);
        names.extend(path);
        package_place = place;
    }
    Module {
        file: file["source"]["file"].as_str().unwrap_or_default().to_owned(),
        package: names,
        package_place,
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
    let written = offset("start").zip(offset("end")).and_then(|(start, end)| text.get(start..end));
    let name = written.or(reference.path.last().map(String::as_str)).unwrap_or(&reference.base).to_owned();
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
    let mut found = Found::default();
    keys.into_iter().for_each(|key| found.visit(key));
    // The name of the rule itself is no reference; all the rest of it may be.
    content.as_object()?.iter().filter(|(field, _)| *field != "refr").for_each(|(_, value)| found.visit(value));
    if head != Head::Default {
        found.visit(&rule.as_object()?.values().next()?["bodies"]);
    }
    let object = &content["key"]["Object"]["fields"];
    Some(Rule {
        has_longer_head: !name.path.is_empty() || content["refr"].get("Var").is_none(),
        name: name.base,
        head,
        place: name.place,
        object_keys: array(object).filter_map(|field| literal(&field[1])).collect(),
        references: found.references,
        calls: found.calls,
    })
}

/// The text of a literal.
fn literal(expression: &Value) -> Option<String> {
    ["String", "RawString"].iter().find_map(|kind| expression.get(kind)?["value"].as_str()).map(str::to_owned)
}

fn place(content: &Value) -> Place {
    let number = |name: &str| content["span"][name].as_u64().and_then(|number| usize::try_from(number).ok());
    Place { line: number("line").unwrap_or(1), column: number("col").unwrap_or(1) }
}

/// What an expression refers to if it begins with a name, and the keys in it that are expressions themselves.
fn reference(expression: &Value) -> Option<(Reference, Vec<&Value>)> {
    let (mut parts, mut keys, mut at) = (Vec::new(), Vec::new(), expression);
    let (base, place) = loop {
        if let Some(dot) = at.get("RefDot") {
            parts.push(dot["field"][1].as_str().map(str::to_owned));
            at = &dot["refr"];
        } else if let Some(bracket) = at.get("RefBrack") {
            let known = literal(&bracket["index"]);
            if known.is_none() {
                keys.push(&bracket["index"]);
            }
            parts.push(known);
            at = &bracket["refr"];
        } else {
            let name = at.get("Var")?;
            break (name["value"].as_str()?.to_owned(), place(name));
        }
    };
    let path = parts.into_iter().rev().map_while(|part| part).collect();
    Some((Reference { base, path, place }, keys))
}

/// Collects references and calls.
#[derive(Default)]
struct Found {
    references: Vec<Reference>,
    calls: Vec<Call>,
}

impl Found {
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
                    self.calls.push(Call { function, first_text: literal(&call["params"][0]) });
                    keys.into_iter().for_each(|key| self.visit(key));
                    self.visit(&call["params"]);
                    return;
                }
                fields.values().for_each(|value| self.visit(value));
            }
        }
    }
}
