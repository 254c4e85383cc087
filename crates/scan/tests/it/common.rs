//! Things to find, and text to hide them in.

use std::sync::LazyLock;

use proptest::prelude::*;
use scan::{Findings, Scanner};

/// Made once: it takes longer than most tests.
pub static SCANNER: LazyLock<Scanner> = LazyLock::new(Scanner::new);

/// Looks like a token of GitHub.
pub fn github_token() -> String {
    Scanner::known().find(|pattern| pattern.name == "github_token").expect("it is one of them").example()
}

pub fn names(findings: &Findings) -> Vec<&'static str> {
    findings.counts.keys().copied().collect()
}

/// The parts of the text that were found.
pub fn found(text: &str) -> Vec<(&'static str, String)> {
    let findings = SCANNER.scan(text.as_bytes());
    let part = |start: u64, end: u64| text[start as usize..end as usize].to_string();
    findings.items.iter().map(|item| (item.pattern, part(item.start, item.end))).collect()
}

/// Words, examples, halves of examples, and anything.
pub fn fragment() -> impl Strategy<Value = String> {
    let examples: Vec<String> = Scanner::known().map(|pattern| pattern.example()).collect();
    let counter_examples: Vec<String> = Scanner::known().map(|pattern| pattern.counter_example()).collect();
    let glue = ["", " ", "\n", "\"", "\\", ": ", "=", "@", "ä", "token", "password: ", "[redacted:", "]", "4111", "-"];
    prop_oneof![
        4 => prop::sample::select(examples.clone()),
        2 => prop::sample::select(examples).prop_map(|example| example[..example.len() / 2].to_string()),
        1 => prop::sample::select(counter_examples),
        4 => prop::sample::select(glue.map(String::from).to_vec()),
        2 => ".{0,12}",
    ]
}

pub fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..6).prop_map(|fragments| fragments.concat())
}
