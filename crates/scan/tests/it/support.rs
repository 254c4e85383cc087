//! Shared test support: example secrets and generated text.

use std::sync::LazyLock;

use proptest::prelude::*;
use scan::{Findings, Scanner};

/// Created once, because creation takes longer than most tests.
pub static SCANNER: LazyLock<Scanner> = LazyLock::new(Scanner::new);

/// An invented GitHub token.
pub fn github_token() -> String {
    Scanner::known()
        .find(|pattern| pattern.name == "github_token")
        .expect("`github_token` is a built-in pattern")
        .example()
}

pub fn names(findings: &Findings) -> Vec<&'static str> {
    findings.counts.keys().copied().collect()
}

/// Pattern and text of each finding.
pub fn found(text: &str) -> Vec<(&'static str, String)> {
    let findings = SCANNER.scan(text.as_bytes());
    let part = |start: u64, end: u64| text[start as usize..end as usize].to_string();
    findings.items.iter().map(|item| (item.pattern, part(item.start, item.end))).collect()
}

/// Examples, halves of examples, separators and arbitrary text.
pub fn fragment() -> impl Strategy<Value = String> {
    let examples: Vec<String> = Scanner::known().map(|pattern| pattern.example()).collect();
    let counter_examples: Vec<String> = Scanner::known().map(|pattern| pattern.counter_example()).collect();
    let separators =
        ["", " ", "\n", "\"", "\\", ": ", "=", "@", "ä", "token", "password: ", "[redacted:", "]", "4111", "-"];
    prop_oneof![
        4 => prop::sample::select(examples.clone()),
        2 => prop::sample::select(examples).prop_map(|example| example[..example.len() / 2].to_string()),
        1 => prop::sample::select(counter_examples),
        4 => prop::sample::select(separators.map(String::from).to_vec()),
        2 => ".{0,12}",
    ]
}

pub fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..6).prop_map(|fragments| fragments.concat())
}
