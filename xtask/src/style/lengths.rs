//! Finds files and functions that are too long.

use std::path::Path;

use super::{Finding, Rule, is_rust};
use crate::rust::outline::outline;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 100;

pub fn check(file: &Path, text: &str) -> Vec<Finding> {
    if !is_rust(file) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        let message = format!("the file has {lines} lines, at most {FILE_LINES_MAX} are allowed");
        findings.push(Finding::new(Rule::LongFile, file, 1, message));
    }
    for function in outline(text).functions {
        let lines = function.last_line - function.first_line + 1;
        if lines > FUNCTION_LINES_MAX {
            let message =
                format!("function {} has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed", function.name);
            findings.push(Finding::new(Rule::LongFunction, file, function.first_line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn functions_longer_than_the_limit_are_found() {
        let file = Path::new("a.rs");
        assert_eq!(check(file, &function_of(FUNCTION_LINES_MAX)), []);
        let findings = check(file, &function_of(FUNCTION_LINES_MAX + 1));
        assert_eq!(findings.iter().map(|finding| finding.rule).collect::<Vec<_>>(), [Rule::LongFunction]);
    }

    #[test]
    fn files_longer_than_the_limit_are_found() {
        let file = Path::new("a.rs");
        assert_eq!(check(file, &"\n".repeat(FILE_LINES_MAX)), []);
        assert_eq!(check(file, &"\n".repeat(FILE_LINES_MAX + 1)).len(), 1);
        assert_eq!(check(Path::new("a.txt"), &"\n".repeat(FILE_LINES_MAX + 1)), []);
    }
}
