//! Removes findings that have a `style: expect` comment.

use std::path::Path;

use super::{Finding, Rule};
use crate::repo::Repo;

const MARKER: &str = "style: expect(";

/// A `style: expect` comment, and whether a finding matched it.
struct Expectation {
    line: usize,
    rule: String,
    matched: bool,
}

/// Removes expected findings, and adds a finding for each expectation without a match.
pub fn apply(findings: Vec<Finding>, repo: &Repo) -> Vec<Finding> {
    let mut remaining = findings;
    for file in &repo.files {
        let Some(text) = repo.read(file).filter(|text| text.contains(MARKER)) else {
            continue;
        };
        remaining = apply_to_file(remaining, file, &text);
    }
    remaining
}

fn apply_to_file(findings: Vec<Finding>, file: &Path, text: &str) -> Vec<Finding> {
    let mut expectations = read(text);
    let mut remaining: Vec<_> = findings
        .into_iter()
        .filter(|finding| {
            let matches = |expectation: &&mut Expectation| {
                let near = expectation.line == finding.line || expectation.line + 1 == finding.line;
                finding.file == file && near && expectation.rule == finding.rule.name()
            };
            match expectations.iter_mut().find(matches) {
                Some(expectation) => {
                    expectation.matched = true;
                    false
                }
                None => true,
            }
        })
        .collect();
    for Expectation { line, rule, .. } in expectations.into_iter().filter(|expectation| !expectation.matched) {
        let known = Rule::ALL.iter().any(|known| known.name() == rule);
        let message =
            if known { format!("no {rule} finding here any more") } else { format!("there is no rule {rule}") };
        remaining.push(Finding::new(Rule::Expectation, file, line, message));
    }
    remaining
}

fn read(text: &str) -> Vec<Expectation> {
    let expectation = |(line, content): (usize, &str)| {
        let (_, rest) = content.split_once(MARKER)?;
        let (rule, _) = rest.split_once(')')?;
        // Placeholders in documentation are not rule names.
        let plain = rule.chars().all(|character| character.is_ascii_lowercase() || character == '-');
        (plain && !rule.is_empty()).then(|| Expectation { line, rule: rule.to_owned(), matched: false })
    };
    (1..).zip(text.lines()).filter_map(expectation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Built at run time, so that this file contains no expectation.
    fn marker(rule: &str) -> String {
        format!("// {MARKER}{rule}): because")
    }

    #[test]
    fn an_expected_finding_is_removed() {
        let file = Path::new("a.rs");
        let findings = vec![Finding::new(Rule::Allow, file, 3, "x"), Finding::new(Rule::Allow, file, 9, "x")];
        let remaining = apply_to_file(findings, file, &format!("\n{}\n#[allow]\n", marker("allow")));
        assert_eq!(remaining, [Finding::new(Rule::Allow, file, 9, "x")]);
    }

    #[test]
    fn an_expectation_without_a_match_is_a_finding() {
        let remaining =
            apply_to_file(Vec::new(), Path::new("a.rs"), &format!("{}\n{}", marker("allow"), marker("no-such-rule")));
        let messages: Vec<_> = remaining.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, ["no allow finding here any more", "there is no rule no-such-rule"]);
    }
}
