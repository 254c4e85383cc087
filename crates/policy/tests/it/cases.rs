//! Test cases for rules.

use policy::limits::CASES_MAX;
use policy::{Report, run_cases};

use crate::support::directory;

const RULES: &str = "package outlast.job
deny contains {\"rule\": \"no-x\", \"reason\": \"x is not for you\"} if input.topic == \"x\"
constrain contains {\"rule\": \"short\", \"reason\": \"r\", \"max_retries\": 1} if input.submitter == \"guest\"
";

fn run(cases: &str) -> Report {
    run_cases(directory(&[("a.rego", RULES), ("a_test.yaml", cases)]).path()).unwrap()
}

#[test]
fn a_case_passes_if_all_expectations_are_met() {
    let report = run("
- {name: denied, job: {topic: x}, expect: {verdict: deny, rule: no-x, reason_contains: not for you}}
- {name: allowed, job: {}, expect: {verdict: allow, rule: default}}
- name: limited
  job: {run: {process: {command: [ls]}}}
  submitter: guest
  expect: {verdict: allow_with_constraints, constraints: {max_retries: 1}}
");
    assert_eq!(report.cases.len(), 3);
    assert!(report.passed(), "{report:?}");
}

#[test]
fn a_failed_case_shows_the_unmet_expectations_and_the_decision() {
    let report = run("
- {name: verdict, job: {topic: x}, expect: {verdict: allow}}
- {name: rule, job: {topic: x}, expect: {verdict: deny, rule: other}}
- {name: reason, job: {topic: x}, expect: {verdict: deny, reason_contains: sorry}}
- {name: limits, job: {}, submitter: guest, expect: {verdict: allow_with_constraints, constraints: {max_retries: 2}}}
- {name: both, job: {topic: x}, submitter: guest, expect: {verdict: allow}}
- {name: no job, job: {tpic: x}, expect: {verdict: allow}}
- {name: bad job, job: {topic: \"\"}, expect: {verdict: allow}}
");
    let shown: Vec<(&str, &str)> =
        report.cases.iter().map(|case| (case.expected.as_str(), case.got.as_str())).collect();
    assert!(report.cases.iter().all(|case| !case.passed && case.file == "a_test.yaml"));
    assert_eq!(shown[0], ("verdict allow", "verdict deny, rule no-x, reason `x is not for you`"));
    assert_eq!(shown[1].0, "rule other");
    assert_eq!(shown[2].0, "a reason with `sorry`");
    assert_eq!(shown[3].0, "constraints {\"max_retries\":2}");
    assert!(shown[3].1.contains("constraints {\"max_retries\":1}"));
    assert!(shown[4].1.ends_with("all rule verdicts: short (constrain), no-x (deny)"), "{}", shown[4].1);
    assert!(shown[5].1.contains("unknown field `tpic`"), "{}", shown[5].1);
    assert!(shown[6].1.contains("would reject"), "{}", shown[6].1);
    assert!(!report.passed());
}

#[test]
fn cases_may_be_json_and_in_any_directory() {
    let case = r#"[{"name": "n", "job": {}, "expect": {"verdict": "allow"}}]"#;
    let directory = directory(&[("a.rego", RULES), ("deep/b_test.json", case)]);
    let report = run_cases(directory.path()).unwrap();
    assert_eq!((report.cases.len(), report.cases[0].file.as_str()), (1, "deep/b_test.json"));
}

#[test]
fn an_invalid_case_file_is_an_error_that_names_it() {
    for text in ["- {name: n}", "{", "- {name: n, job: {}, expect: {verdict: allow, colour: red}}"] {
        let error = run_cases(directory(&[("a.rego", RULES), ("a_test.yaml", text)]).path()).unwrap_err().to_string();
        assert!(error.starts_with("a_test.yaml: invalid test cases"), "{error}");
    }
}

#[test]
fn cases_are_limited_in_number() {
    let case = r#"{"name": "n", "job": {}, "expect": {"verdict": "allow"}}"#;
    let many = |count: usize| format!("[{}]", vec![case; count].join(","));
    let run = |count: usize| run_cases(directory(&[("a.rego", RULES), ("a_test.json", &many(count))]).path());
    assert_eq!(run(CASES_MAX).unwrap().cases.len(), CASES_MAX);
    assert!(run(CASES_MAX + 1).unwrap_err().to_string().contains("more than 10000 cases"));
}
