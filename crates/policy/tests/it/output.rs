//! What rules can say of a result.

use model::limits::FINDINGS_MAX;
use model::verdict::{OutputVerdict, Phase};
use policy::{FindingFacts, FindingKind, JobFacts, OutcomeFacts, OutputFacts, OutputRuling, Rules};

use crate::common::{NOW, echo, job_rules, load};

fn rules(text: &str) -> Rules {
    load(&[("o.rego", &format!("package outlast.output\n{text}"))]).unwrap()
}

fn findings(count: usize) -> Vec<FindingFacts> {
    let finding =
        FindingFacts { pattern: "key".to_owned(), kind: FindingKind::Secret, place: "log".to_owned(), count: 1 };
    vec![finding; count]
}

fn ask(rules: &Rules, findings: &[FindingFacts]) -> OutputRuling {
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
        let ruling = ask(&rules(&text.join("\n")), &[]);
        assert_eq!(ruling.decision.verdict, all[strongest].0);
        assert_eq!(ruling.keep_original, all[strongest].0 == OutputVerdict::Redact);
    }
    let ruling = ask(&job_rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"}"), &[]);
    assert_eq!((ruling.decision.verdict, ruling.decision.rule.as_str()), (OutputVerdict::Allow, "default"));
}

#[test]
fn the_original_is_kept_only_if_all_agree() {
    let redact =
        |name: &str, more: &str| format!("redact contains {{\"rule\": \"{name}\", \"reason\": \"r\"{more}}}\n");
    assert!(!ask(&rules(&redact("a", "")), &[]).keep_original);
    let both = redact("a", ", \"keep_original\": true") + &redact("b", ", \"keep_original\": false");
    let ruling = ask(&rules(&both), &[]);
    assert!(!ruling.keep_original);
    assert_eq!(ruling.decision.rule, "a, b");
}

#[test]
fn where_the_rules_cannot_say_a_result_is_held_back() {
    for rule in [
        "deny contains 1",
        "redact contains {\"rule\": \"s\", \"reason\": \"r\", \"keep_original\": 1}",
        "quarantine contains {\"rule\": \"q\", \"reason\": \"r\", \"for_ms\": 1}",
        "deny contains {\"rule\": \"d\", \"reason\": \"r\"} if to_number(input.topic) > 1",
    ] {
        let ruling = ask(&rules(rule), &[]);
        assert_eq!(ruling.decision.verdict, OutputVerdict::Quarantine, "{rule}");
        assert_eq!(ruling.decision.rule, "policy_error");
    }
}

#[test]
fn rules_see_the_outcome_and_the_findings() {
    let rules = rules(
        "deny contains {\"rule\": \"seen\", \"reason\": json.marshal([input.phase, input.outcome, input.findings[0], input.topic])}",
    );
    let seen: serde_json::Value = serde_json::from_str(&ask(&rules, &findings(1)).decision.message.unwrap()).unwrap();
    let expected = serde_json::json!(["content",
        {"exit_code": 0, "cpu_ms": 0, "memory_peak_bytes": 0, "result_bytes": 5, "log_bytes": 0, "artifacts": []},
        {"pattern": "key", "kind": "secret", "place": "log", "count": 1}, "default"]);
    assert_eq!(seen, expected);
}

#[test]
fn findings_on_record_are_counted_at_the_limit() {
    let rules = rules("redact contains {\"rule\": \"s\", \"reason\": \"r\"} if count(input.findings) > 0");
    let ruling = ask(&rules, &findings(FINDINGS_MAX + 1));
    assert_eq!(ruling.decision.findings.len(), FINDINGS_MAX);
    assert_eq!(ask(&rules, &findings(3)).decision.findings.len(), 3);
    assert_eq!(ask(&rules, &[]).decision.verdict, OutputVerdict::Allow);
}

#[test]
fn only_rules_that_read_findings_need_the_content() {
    assert!(rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.findings[_].count > 1").needs_content());
    assert!(rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.phase == \"content\"").needs_content());
    let metadata = rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.outcome.result_bytes > 1");
    assert!(metadata.has_output_rules() && !metadata.needs_content());
    assert!(!job_rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"}").has_output_rules());
}

#[test]
fn verdicts_on_jobs_are_none_on_results() {
    for (text, said) in [
        ("throttle contains {\"rule\": \"d\", \"reason\": \"r\"}", "`throttle` looks like a verdict"),
        ("default_verdict := \"deny\"", "results have no default verdict"),
    ] {
        let error = load(&[("o.rego", &format!("package outlast.output\n{text}"))]).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
