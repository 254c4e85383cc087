//! Goes through a JSON text that is known to be right, and copies it, but for its findings.

use std::collections::HashSet;

use super::RedactedJson;
use super::text::{REDACTED, Redactor, unescape};
use crate::JSON_DEPTH_MAX;
use crate::checks::names::{Says, says_secret};
use crate::scanner::Scanner;

/// Numbers of fewer digits are no cards.
const NUMBER_BYTES_MIN: usize = 13;

/// An array or object that has begun and not ended.
struct Container {
    object: bool,
    /// The next string is the name of a member.
    name_next: bool,
    /// What the name above says about the strings directly in here.
    says: Option<Says>,
    /// Names that redaction made, or could have made: no two may be the same.
    names: HashSet<String>,
}

pub(super) struct Walk<'a> {
    redactor: Redactor<'a>,
    json: &'a str,
    containers: Vec<Container>,
    output: String,
}

impl<'a> Walk<'a> {
    pub(super) fn new(scanner: &'a Scanner, json: &'a str) -> Self {
        let output = String::with_capacity(json.len());
        Self { redactor: Redactor::new(scanner), json, containers: Vec::new(), output }
    }

    /// Nothing where it is nested too deep.
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
                    self.mark(byte)?;
                    self.output.push_str(token);
                }
            }
            at = end;
        }
        Some(RedactedJson { text: self.output, counts: self.redactor.counts })
    }

    /// Brackets, commas and colons. Space and the letters of `true`, `false` and `null` change nothing.
    fn mark(&mut self, byte: u8) -> Option<()> {
        match byte {
            b'{' | b'[' => {
                if self.containers.len() == JSON_DEPTH_MAX {
                    return None;
                }
                let object = byte == b'{';
                // What a name says holds for the strings of an array under it, not for the members of an object.
                let says = if object { None } else { self.containers.last().and_then(|above| above.says) };
                self.containers.push(Container { object, name_next: object, says, names: HashSet::new() });
            }
            b'}' | b']' => {
                self.containers.pop();
            }
            b',' => {
                if let Some(container) = self.containers.last_mut().filter(|container| container.object) {
                    container.name_next = true;
                    container.says = None;
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
                let replaced = name(&mut self.redactor, container, &text);
                container.says = says_secret(&without_redacted(replaced.as_deref().unwrap_or(&text)));
                replaced
            }
            None => {
                let says = self.containers.last().and_then(|container| container.says);
                self.redactor.value(&text, says)
            }
        };
        match replaced {
            Some(replaced) => self.push_string(&replaced),
            None => self.output.push_str(token),
        }
    }

    fn number(&mut self, token: &str) {
        let replaced = (token.len() >= NUMBER_BYTES_MIN).then(|| self.redactor.text(token)).flatten();
        match replaced {
            Some(replaced) => self.push_string(&replaced),
            None => self.output.push_str(token),
        }
    }

    fn push_string(&mut self, text: &str) {
        self.output.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// What to call a member instead, if anything.
fn name(redactor: &mut Redactor<'_>, container: &mut Container, text: &str) -> Option<String> {
    let redacted = redactor.value(text, None);
    let new = redacted.as_deref().unwrap_or(text);
    if !new.contains(REDACTED) || container.names.insert(new.to_string()) {
        return redacted;
    }
    let numbered = (2_u64..).map(|number| format!("{new}#{number}"));
    // There are fewer names than numbers.
    numbered.into_iter().find(|numbered| container.names.insert(numbered.clone()))
}

/// A name without what redaction put there: the name of a pattern says nothing about the value.
fn without_redacted(mut name: &str) -> String {
    let mut rest = String::new();
    while let Some((before, after)) = name.split_once(REDACTED) {
        rest.push_str(before);
        name = after.split_once(']').map_or("", |(_, after)| after);
    }
    rest + name
}

/// Where the string that begins here ends, quotes included.
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
