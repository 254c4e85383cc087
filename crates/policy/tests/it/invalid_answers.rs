//! Invalid answers of rules deny the job, with a message that says why.

use model::limits::{DURATION_MAX, NAME_BYTES_MAX};
use model::verdict::Verdict;
use policy::limits::VERDICTS_MAX;

use crate::support::{decide, echo, job_rules};

fn denied_as_invalid(text: &str) -> String {
    let rules = job_rules(text);
    let decision = decide(&rules, &echo());
    assert_eq!((&decision.verdict, decision.rule.as_str()), (&Verdict::Deny, "policy_error"), "{text}");
    let message = decision.message.unwrap();
    assert!(message.contains(&rules.version().to_string()), "{message}");
    message
}

#[test]
fn every_kind_of_invalid_answer_is_denied_with_its_reason() {
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for (rule, expected) in [
        (r#"deny contains "no""#, "`deny` contains a string: it must be an object"),
        (r#"deny contains true"#, "must be an object"),
        (r#"deny contains {"reason": "r"}"#, "in `deny`: `rule` is missing"),
        (r#"deny contains {"rule": "d"}"#, "of rule `d`: `reason` is missing"),
        (r#"deny contains {"rule": 1, "reason": "r"}"#, "`rule` is a number"),
        (r#"deny contains {"rule": "d", "reason": null}"#, "`reason` is null"),
        (r#"deny contains {"rule": "", "reason": "r"}"#, "`rule` must have 1 to 128"),
        (r#"deny contains {"rule": "a, b", "reason": "r"}"#, "`rule` must have 1 to 128"),
        (&format!(r#"deny contains {{"rule": "{long}", "reason": "r"}}"#), "`rule` must have 1 to 128"),
        (r#"deny contains {"rule": "d", "reason": "r", "code": 1}"#, "unknown field `code`"),
        (r#"deny contains {"rule": "d", "reason": "r", 1: 1}"#, "a key that is not a string"),
        (r#"throttle contains {"rule": "t", "reason": "r"}"#, "`for_ms` is missing"),
        (r#"throttle contains {"rule": "t", "reason": "r", "for_ms": -1}"#, "non-negative integer"),
        (r#"throttle contains {"rule": "t", "reason": "r", "for_ms": 0}"#, "`for_ms` is 0"),
        (r#"throttle contains {"rule": "t", "reason": "r", "for_ms": 1.5}"#, "non-negative integer"),
        (r#"throttle contains {"rule": "t", "reason": "r", "for_ms": "5"}"#, "it must be a number"),
        (
            &format!(r#"throttle contains {{"rule": "t", "reason": "r", "for_ms": {}}}"#, DURATION_MAX.0 + 1),
            "it must be 1 to",
        ),
        (r#"constrain contains {"rule": "c", "reason": "r"}"#, "no constraint is set"),
        (r#"constrain contains {"rule": "c", "reason": "r", "max_runtime_ms": 0}"#, "use `deny` instead"),
        (r#"constrain contains {"rule": "c", "reason": "r", "max_concurrent": 0}"#, "use `deny` instead"),
        (r#"constrain contains {"rule": "c", "reason": "r", "max_retries": 4294967296}"#, "the maximum is 4294967295"),
        (r#"constrain contains {"rule": "c", "reason": "r", "max_retries": -1}"#, "non-negative integer"),
        (r#"constrain contains {"rule": "c", "reason": "r", "sandbox": "weak"}"#, "must be `strict`"),
        (r#"constrain contains {"rule": "c", "reason": "r", "sandbox": 1}"#, "must be `strict`"),
        (r#"constrain contains {"rule": "c", "reason": "r", "network": "no"}"#, "a boolean"),
        (r#"constrain contains {"rule": "c", "reason": "r", "max_runtime": 5}"#, "no constraint is set"),
        (
            r#"constrain contains {"rule": "c", "reason": "r", "max_retries": 1, "max_runtime": 5}"#,
            "unknown field `max_runtime`",
        ),
        (r#"allow contains {"rule": "a", "reason": []}"#, "`reason` is an array"),
        (r#"default_verdict := "maybe""#, "must be `allow`"),
        (r#"default_verdict := 1"#, "must be a string"),
    ] {
        let message = denied_as_invalid(rule);
        assert!(message.contains(expected), "{rule}: {message}");
    }
}

#[test]
fn one_invalid_verdict_invalidates_the_whole_answer() {
    denied_as_invalid("deny contains 1\nallow contains {\"rule\": \"a\", \"reason\": \"r\"}");
}

#[test]
fn values_at_the_limits_are_valid() {
    let name = "x".repeat(NAME_BYTES_MAX);
    let rules =
        job_rules(&format!(r#"throttle contains {{"rule": "{name}", "reason": "r", "for_ms": {}}}"#, DURATION_MAX.0));
    assert_eq!(decide(&rules, &echo()).rule, name);
}

#[test]
fn verdicts_are_limited_in_number() {
    let rules = |count: usize| {
        format!(
            "deny contains {{\"rule\": sprintf(\"r%d\", [n]), \"reason\": \"r\"}} if some n in numbers.range(1, {count})"
        )
    };
    assert_ne!(decide(&job_rules(&rules(VERDICTS_MAX)), &echo()).rule, "policy_error");
    assert!(denied_as_invalid(&rules(VERDICTS_MAX + 1)).contains("more than 256 verdicts"));
}

#[test]
fn a_long_reason_is_truncated() {
    let rules = job_rules(
        "deny contains {\"rule\": \"d\", \"reason\": concat(\"\", [\"long \" | some _ in numbers.range(1, 1000)])}",
    );
    let decision = decide(&rules, &echo());
    assert_eq!(decision.rule, "d");
    assert!(decision.message.unwrap().len() <= model::limits::MESSAGE_BYTES_MAX);
}

#[test]
fn an_evaluation_error_denies_instead_of_skipping_the_rule() {
    for (rule, expected) in [
        ("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if to_number(input.topic) > 5", "a.rego:2"),
        ("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if 1 / count(input.requires) > 5", "divide by zero"),
        ("deny contains {\"rule\": \"d\", \"reason\": x}\nx := 1 if true\nx := 2 if true", "conflict"),
        ("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if count(input.topic, 2, 3)", "count"),
        ("deny contains {\"rule\": \"d\", \"reason\": unknown}", "unknown"),
    ] {
        let message = denied_as_invalid(rule);
        assert!(message.contains(expected), "{rule}: {message}");
    }
}
