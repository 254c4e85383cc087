//! Finds absolute paths that exist on one machine only.

use std::path::Path;

use super::{Finding, Rule};
use crate::rust::mask::is_word;

/// Top-level directories with machine-specific content.
const MACHINE_SPECIFIC: [&str; 3] = ["work", "root", "home"];

pub fn check(file: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        for path in MACHINE_SPECIFIC.map(|name| format!("/{name}/")) {
            if content.match_indices(&path).any(|(at, _)| is_absolute(&content[..at])) {
                let message = format!("a path below {path} exists on one machine only");
                findings.push(Finding::new(Rule::MachinePath, file, line, message));
            }
        }
    }
    findings
}

/// Whether a slash after `before` starts an absolute path.
fn is_absolute(before: &str) -> bool {
    !before.chars().next_back().is_some_and(|last| is_word(last) || "./-~}>)*".contains(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_count() {
        let found = |text: &str| check(Path::new("a.toml"), &text.replace('|', "/")).len();
        assert_eq!(found("path = \"|home|someone\""), 1);
        assert_eq!(found("see |work|main, or PATH=a:|root|bin"), 2);
        assert_eq!(found("https://host|work|x and ./|home|x and {base}|root|x"), 0);
    }
}
