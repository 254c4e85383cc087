//! Single pass over a valid JSON document that copies it and redacts findings.

use std::collections::HashSet;

use super::RedactedJson;
use super::text::{MARK_START, Redactor, unescape};
use crate::JSON_DEPTH_MAX;
use crate::checks::names::{SecretName, classify};
use crate::scanner::Scanner;

/// Shorter numbers are not scanned: they are no card numbers.
const NUMBER_BYTES_MIN: usize = 13;

/// An open array or object.
struct Container {
    object: bool,
    /// The next string is the name of a member.
    name_next: bool,
    /// Class of the current member name, which applies to its value or to the elements of its array.
    name_class: Option<SecretName>,
    /// Member names with a redaction mark, which must stay unique.
    names: HashSet<String>,
}

pub(super) struct JsonWalk<'a> {
    redactor: Redactor<'a>,
    json: &'a str,
    containers: Vec<Container>,
    output: String,
}

impl<'a> JsonWalk<'a> {
    pub(super) fn new(scanner: &'a Scanner, json: &'a str) -> Self {
        let output = String::with_capacity(json.len());
        Self { redactor: Redactor::new(scanner), json, containers: Vec::new(), output }
    }

    /// Returns `None` if the document is nested too deep.
    pub(super) fn run(mut self) -> Option<RedactedJson> {
        let bytes = self.json.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let end = match byte {
                b'"' => string_end(bytes, at),
                b'-' | b'0'..=b'9' => number_end(bytes, at),
                _ => at + 1,
            };
            let token = &self.json[at..end];
            match byte {
                b'"' => self.string(token),
                b'-' | b'0'..=b'9' => self.number(token),
                _ => {
                    self.structure(byte)?;
                    self.output.push_str(token);
                }
            }
            at = end;
        }
        Some(RedactedJson { text: self.output, counts: self.redactor.counts })
    }

    /// Tracks brackets and commas. Other bytes outside strings and numbers have no effect.
    fn structure(&mut self, byte: u8) -> Option<()> {
        match byte {
            b'{' | b'[' => {
                if self.containers.len() == JSON_DEPTH_MAX {
                    return None;
                }
                let object = byte == b'{';
                // The class of a name applies to the elements of an array, but not to the members of an object.
                let name_class = if object { None } else { self.containers.last().and_then(|outer| outer.name_class) };
                self.containers.push(Container { object, name_next: object, name_class, names: HashSet::new() });
            }
            b'}' | b']' => {
                self.containers.pop();
            }
            b',' => {
                if let Some(container) = self.containers.last_mut().filter(|container| container.object) {
                    container.name_next = true;
                    container.name_class = None;
                }
            }
            _ => {}
        }
        Some(())
    }

    fn string(&mut self, token: &str) {
        let text = unescape(&token[1..token.len() - 1]);
        let replaced = match self.containers.last_mut().filter(|container| container.name_next) {
            Some(container) => {
                container.name_next = false;
                let replaced = redact_name(&mut self.redactor, container, &text);
                container.name_class = classify(&without_marks(replaced.as_deref().unwrap_or(&text)));
                replaced
            }
            None => {
                let name_class = self.containers.last().and_then(|container| container.name_class);
                self.redactor.value(&text, name_class)
            }
        };
        match replaced {
            Some(replaced) => self.push_string(&replaced),
            None => self.output.push_str(token),
        }
    }

    fn number(&mut self, token: &str) {
        let replaced = (token.len() >= NUMBER_BYTES_MIN).then(|| self.redactor.number(token)).flatten();
        match replaced {
            Some(replaced) => self.push_string(&replaced),
            None => self.output.push_str(token),
        }
    }

    fn push_string(&mut self, text: &str) {
        self.output.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// Redacts a member name and keeps it unique. `None` if it stays unchanged.
fn redact_name(redactor: &mut Redactor<'_>, container: &mut Container, text: &str) -> Option<String> {
    let redacted = redactor.value(text, None);
    let new = redacted.as_deref().unwrap_or(text);
    if !new.contains(MARK_START) || container.names.insert(new.to_string()) {
        return redacted;
    }
    let numbered = (2_u64..).map(|number| format!("{new}#{number}"));
    // Ends: the number of names is finite.
    numbered.into_iter().find(|numbered| container.names.insert(numbered.clone()))
}

/// Removes redaction marks from a name: the name of a pattern must not classify the value.
fn without_marks(mut name: &str) -> String {
    let mut rest = String::new();
    while let Some((before, after)) = name.split_once(MARK_START) {
        rest.push_str(before);
        name = after.split_once(']').map_or("", |(_, after)| after);
    }
    rest + name
}

/// End of the string that starts here, including quotes.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

fn number_end(bytes: &[u8], start: usize) -> usize {
    let rest = &bytes[start..];
    let part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    start + rest.iter().position(|byte| !part(byte)).unwrap_or(rest.len())
}
