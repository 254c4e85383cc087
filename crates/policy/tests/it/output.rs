//! Verdicts on results.

use model::limits::FINDINGS_MAX;
use model::verdict::{OutputVerdict, Phase};
use policy::{FindingFacts, FindingKind, JobFacts, OutcomeFacts, OutputCheck, OutputFacts, Rules};

use crate::support::{NOW, echo, job_rules, load};

fn rules(text: &str) -> Rules {
    load(&[("o.rego", &format!("package outlast.output\n{text}"))]).unwrap()
}

fn findings(count: usize) -> Vec<FindingFacts> {
    let finding =
        FindingFacts { pattern: "key".to_owned(), kind: FindingKind::Secret, place: "log".to_owned(), count: 1 };
    vec![finding; count]
}

fn check(rules: &Rules, findings: &[FindingFacts]) -> OutputCheck {
    let (spec, outcome) = (echo(), OutcomeFacts { exit_code: Some(0), result_bytes: 5, ..OutcomeFacts::default() });
    let facts = OutputFacts { job: JobFacts::of(&spec), phase: Phase::Content, outcome: &outcome, findings };
    rules.decide_output(&facts, NOW)
}

// FEATURES: D3
#[test]
fn the_strongest_verdict_on_a_result_wins() {
    let all = [
        (OutputVerdict::Deny, "deny contains {\"rule\": \"d\", \"reason\": \"r\"}"),
        (OutputVerdict::Quarantine, "quarantine contains {\"rule\": \"q\", \"reason\": \"r\"}"),
        (OutputVerdict::Redact, "redact contains {\"rule\": \"s\", \"reason\": \"r\", \"keep_original\": true}"),
    ];
    for strongest in 0..all.len() {
        let text: Vec<&str> = all[strongest..].iter().map(|(_, rule)| *rule).collect();
        let checked = check(&rules(&text.join("\n")), &[]);
        assert_eq!(checked.decision.verdict, all[strongest].0);
        assert_eq!(checked.keep_original, all[strongest].0 == OutputVerdict::Redact);
    }
    let checked = check(&job_rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"}"), &[]);
    assert_eq!((checked.decision.verdict, checked.decision.rule.as_str()), (OutputVerdict::Allow, "default"));
}

#[test]
fn the_original_is_stored_only_if_all_rules_agree() {
    let redact =
        |name: &str, more: &str| format!("redact contains {{\"rule\": \"{name}\", \"reason\": \"r\"{more}}}\n");
    assert!(!check(&rules(&redact("a", "")), &[]).keep_original);
    let both = redact("a", ", \"keep_original\": true") + &redact("b", ", \"keep_original\": false");
    let checked = check(&rules(&both), &[]);
    assert!(!checked.keep_original);
    assert_eq!(checked.decision.rule, "a, b");
}

#[test]
fn a_failed_evaluation_quarantines_the_result() {
    for rule in [
        "deny contains 1",
        "redact contains {\"rule\": \"s\", \"reason\": \"r\", \"keep_original\": 1}",
        "quarantine contains {\"rule\": \"q\", \"reason\": \"r\", \"for_ms\": 1}",
        "deny contains {\"rule\": \"d\", \"reason\": \"r\"} if to_number(input.topic) > 1",
    ] {
        let checked = check(&rules(rule), &[]);
        assert_eq!(checked.decision.verdict, OutputVerdict::Quarantine, "{rule}");
        assert_eq!(checked.decision.rule, "policy_error");
    }
}

#[test]
fn rules_see_the_outcome_and_the_findings() {
    let rules = rules(
        "deny contains {\"rule\": \"seen\", \"reason\": json.marshal([input.phase, input.outcome, input.findings[0], input.topic])}",
    );
    let seen: serde_json::Value = serde_json::from_str(&check(&rules, &findings(1)).decision.message.unwrap()).unwrap();
    let expected = serde_json::json!(["content",
        {"exit_code": 0, "cpu_ms": 0, "memory_peak_bytes": 0, "result_bytes": 5, "log_bytes": 0, "artifacts": []},
        {"pattern": "key", "kind": "secret", "place": "log", "count": 1}, "default"]);
    assert_eq!(seen, expected);
}

#[test]
fn recorded_findings_are_limited() {
    let rules = rules("redact contains {\"rule\": \"s\", \"reason\": \"r\"} if count(input.findings) > 0");
    let checked = check(&rules, &findings(FINDINGS_MAX + 1));
    assert_eq!(checked.decision.findings.len(), FINDINGS_MAX);
    assert_eq!(check(&rules, &findings(3)).decision.findings.len(), 3);
    assert_eq!(check(&rules, &[]).decision.verdict, OutputVerdict::Allow);
}

#[test]
fn only_rules_that_read_findings_or_the_phase_need_the_content() {
    assert!(rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.findings[_].count > 1").needs_content());
    assert!(rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.phase == \"content\"").needs_content());
    let metadata = rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.outcome.result_bytes > 1");
    assert!(metadata.has_output_rules() && !metadata.needs_content());
    assert!(!job_rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"}").has_output_rules());
}

#[test]
fn verdicts_on_jobs_are_invalid_for_results() {
    for (text, expected) in [
        ("throttle contains {\"rule\": \"d\", \"reason\": \"r\"}", "`throttle` looks like a verdict"),
        ("default_verdict := \"deny\"", "results have no default verdict"),
    ] {
        let error = load(&[("o.rego", &format!("package outlast.output\n{text}"))]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
