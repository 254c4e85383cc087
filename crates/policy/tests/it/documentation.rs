//! `docs/policy.md`: all Rego snippets load, all test cases pass.

use std::path::PathBuf;

use policy::{Rules, run_cases};

use crate::support::directory;

/// Code blocks of a language, in order.
fn snippets(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

fn page() -> String {
    std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md")).unwrap()
}

#[test]
fn every_rego_snippet_is_a_valid_policy() {
    let snippets = snippets(&page(), "rego");
    assert!(snippets.len() >= 5);
    for snippet in &snippets {
        Rules::load(directory(&[("page.rego", snippet)]).path()).unwrap_or_else(|error| panic!("{error}\n{snippet}"));
    }
}

#[test]
fn the_cases_pass_with_all_rules_of_the_page() {
    let page = page();
    let (rules, cases) = (snippets(&page, "rego"), snippets(&page, "yaml"));
    assert!(!cases.is_empty());
    let names: Vec<String> = (0..rules.len()).map(|number| format!("{number}.rego")).collect();
    let mut files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(rules.iter().map(String::as_str)).collect();
    let cases = cases.concat();
    files.push(("page_test.yaml", &cases));
    let report = run_cases(directory(&files).path()).unwrap();
    for case in &report.cases {
        assert!(case.passed, "{}: expected {}, got {}", case.name, case.expected, case.got);
    }
}
