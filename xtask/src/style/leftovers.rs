//! Finds leftovers: reminders, unfinished code, silenced lints.

use std::path::Path;

use super::{Finding, Rule, is_markdown, is_rust};
use crate::rust::mask::{is_word, mask};
use crate::rust::outline::outline;

/// Reminder comments. Concatenated, so that this file has no findings.
const REMINDERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const UNFINISHED_MACROS: [&str; 2] = ["todo!", "unimplemented!"];

pub fn check(file: &Path, text: &str) -> Vec<Finding> {
    // Prose may mention these words; checksums in the lock file may contain them.
    if is_markdown(file) || file.extension().is_some_and(|extension| extension == "lock") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        for word in REMINDERS.iter().filter(|word| has_word(content, word)) {
            findings.push(Finding::new(Rule::Leftover, file, line, format!("a leftover {word}")));
        }
    }
    if is_rust(file) {
        findings.extend(in_code(file, text));
    }
    findings
}

fn in_code(file: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let code: String = mask(text).code.into_iter().collect();
    for (line, content) in (1..).zip(code.lines()) {
        for name in UNFINISHED_MACROS.iter().filter(|name| has_word(content, name)) {
            findings.push(Finding::new(Rule::Leftover, file, line, format!("unfinished code: {name}")));
        }
    }
    for attribute in outline(text).attributes {
        let bare: String = attribute.text.split_whitespace().collect();
        if bare.starts_with("allow(") || (bare.starts_with("cfg_attr(") && bare.contains(",allow(")) {
            let message = "use #[expect(…)] with a reason: the compiler reports it when it is no longer needed";
            findings.push(Finding::new(Rule::Allow, file, attribute.line, message));
        }
    }
    findings
}

/// Whether the line contains `word`, not as a part of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(Path::new("a.rs"), text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn reminders_are_found_as_words() {
        let [reminder, _, crosses] = REMINDERS;
        assert_eq!(lines(&format!("a\n// {reminder}: later\n")), [2]);
        assert_eq!(lines(&format!("let template = \"{crosses}{crosses}\";")), Vec::<usize>::new());
    }

    #[test]
    fn unfinished_code_is_found_outside_strings() {
        assert_eq!(lines("fn f() {\n    todo!()\n}\nfn g() { \"todo!()\" }"), [2]);
    }

    #[test]
    fn silenced_lints_are_found() {
        assert_eq!(lines("#![allow(dead_code)]\n#[cfg_attr(test, allow(x))]\n#[expect(y)]\nfn f() {}"), [1, 2]);
    }
}
