//! Verdicts on jobs and their combination.

use model::limits::NAME_BYTES_MAX;
use model::spec::Sandbox;
use model::time::Millis;
use model::verdict::{Constraints, Verdict};
use policy::JobFacts;

use crate::support::{NOW, decide, echo, job_rules, load};

const ALL: [(&str, &str); 5] = [
    ("deny", r#"deny contains {"rule": "d", "reason": "no"}"#),
    ("require_approval", r#"require_approval contains {"rule": "r", "reason": "ask"}"#),
    ("throttle", r#"throttle contains {"rule": "t", "reason": "wait", "for_ms": 5}"#),
    ("allow_with_constraints", r#"constrain contains {"rule": "c", "reason": "less", "max_retries": 1}"#),
    ("allow", r#"allow contains {"rule": "a", "reason": "fine"}"#),
];

// FEATURES: D1
#[test]
fn the_strongest_verdict_wins() {
    for weakest in 0..ALL.len() {
        for strongest in 0..=weakest {
            let text: Vec<&str> = ALL[strongest..=weakest].iter().rev().map(|(_, rule)| *rule).collect();
            let decision = decide(&job_rules(&text.join("\n")), &echo());
            assert_eq!(decision.verdict.as_str(), ALL[strongest].0);
            assert_eq!(decision.rule, ["d", "r", "t", "c", "a"][strongest]);
            assert_eq!(decision.message.as_deref(), Some(["no", "ask", "wait", "less", "fine"][strongest]));
        }
    }
}

#[test]
fn a_decision_has_its_time_and_policy_version() {
    let rules = job_rules(ALL[0].1);
    let decision = decide(&rules, &echo());
    assert_eq!(decision.at, NOW);
    assert_eq!(decision.policy, Some(rules.version()));
    assert_eq!(decision, decide(&rules, &echo()));
}

#[test]
fn the_default_verdict_holds_if_no_rule_applies() {
    let never = r#"deny contains {"rule": "d", "reason": "no"} if input.topic == "never""#;
    let decision = decide(&job_rules(never), &echo());
    assert_eq!((decision.verdict, decision.rule.as_str()), (Verdict::Allow, "default"));
    for (text, verdict) in
        [("allow", Verdict::Allow), ("deny", Verdict::Deny), ("require_approval", Verdict::RequireApproval)]
    {
        let rules = job_rules(&format!("{never}\ndefault_verdict := \"{text}\""));
        let decision = decide(&rules, &echo());
        assert_eq!((decision.verdict, decision.rule.as_str()), (verdict, "default"));
    }
    // A conditional default.
    let rules = job_rules("default_verdict := \"deny\" if input.topic == \"secret\"");
    assert_eq!(decide(&rules, &echo()).verdict, Verdict::Allow);
    let mut secret = echo();
    secret.topic = "secret".to_owned();
    assert_eq!(decide(&rules, &secret).verdict, Verdict::Deny);
    // An allow overrides the default.
    let rules = job_rules(&format!("{}\ndefault_verdict := \"deny\"", ALL[4].1));
    assert_eq!(decide(&rules, &echo()).rule, "a");
}

#[test]
fn the_strictest_value_of_each_constraint_counts() {
    let rules = job_rules(
        r#"constrain contains {"rule": "b", "reason": "second", "max_runtime_ms": 10, "max_retries": 5,
               "sandbox": "standard", "network": true, "max_concurrent": 3}
           constrain contains {"rule": "a", "reason": "first", "max_runtime_ms": 20, "max_retries": 4,
               "sandbox": "strict", "network": false, "max_artifact_bytes": 7}"#,
    );
    let decision = decide(&rules, &echo());
    let constraints = Constraints {
        max_runtime: Some(Millis(10)),
        max_retries: Some(4),
        max_artifact_bytes: Some(7),
        max_concurrent: Some(3),
        sandbox: Some(Sandbox::Strict),
        network: Some(false),
    };
    assert_eq!(decision.verdict, Verdict::AllowWith(constraints));
    assert_eq!(decision.rule, "a, b");
}

#[test]
fn constraints_of_other_rules_apply_after_an_approval() {
    let decision = decide(&job_rules(&format!("{}\n{}", ALL[1].1, ALL[3].1)), &echo());
    assert_eq!(decision.verdict, Verdict::RequireApproval);
    assert_eq!(decision.constraints.unwrap().max_retries, Some(1));
}

#[test]
fn the_longest_throttle_counts_from_now() {
    let rules = job_rules(
        r#"throttle contains {"rule": "short", "reason": "x", "for_ms": 10}
           throttle contains {"rule": "long", "reason": "y", "for_ms": 20}"#,
    );
    let decision = decide(&rules, &echo());
    assert_eq!((decision.verdict, decision.rule.as_str()), (Verdict::Throttle(NOW + Millis(20)), "long"));
}

#[test]
fn all_rules_with_the_winning_verdict_are_named_within_the_limit() {
    let name = |letter: char| letter.to_string().repeat(60);
    let rule =
        |letter: char| format!("require_approval contains {{\"rule\": \"{}\", \"reason\": \"r\"}}\n", name(letter));
    let both = decide(&job_rules(&(rule('a') + &rule('b'))), &echo());
    assert_eq!(both.rule, format!("{}, {}", name('a'), name('b')));
    let three = decide(&job_rules(&(rule('a') + &rule('b') + &rule('c'))), &echo()).rule;
    assert_eq!(three.len(), NAME_BYTES_MAX);
    // Truncated, but still distinct: an approval is bound to one set of rules.
    let others = decide(&job_rules(&(rule('a') + &rule('b') + &rule('d'))), &echo()).rule;
    assert_ne!(three, others);
}

#[test]
fn input_has_the_job_its_submitter_its_queue_and_the_time() {
    let rules = job_rules(
        r#"deny contains {"rule": "seen", "reason": reason} if {
               reason := json.marshal([input.tenant, input.topic, input.labels, input.requires, input.submitter,
                   input.queue, input.time, input.job.run, input.job.priority, time.now_ns()])
           }"#,
    );
    let mut spec: model::spec::JobSpec = serde_json::from_str(
        r#"{"run": {"echo": {"value": {"a": [1, 2.5, null]}, "delay_ms": 3}}, "labels": {"x": "y"}, "tenant": "t"}"#,
    )
    .unwrap();
    spec.requires = vec!["gpu".to_owned()];
    let facts = JobFacts { spec: &spec, submitter: Some("me"), queue: Some("q".to_owned()) };
    let seen = rules.decide(&facts, NOW + Millis(61_000)).message.unwrap();
    let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
    let expected = serde_json::json!(["t", "default", {"x": "y"}, ["gpu"], "me", "q",
        {"unix_ms": 1_767_787_261_000_u64, "rfc3339": "2026-01-07T12:01:01.000Z", "weekday": "wednesday", "hour": 12,
            "minute": 1},
        {"echo": {"value": {"a": [1, 2.5, null]}, "delay_ms": 3}}, "interactive", 1_767_787_261_000_000_000_u64]);
    assert_eq!(seen, expected);
}

#[test]
fn input_job_has_the_json_form_of_the_api() {
    let rules = job_rules(r#"deny contains {"rule": "seen", "reason": json.marshal(input.job)}"#);
    let blob = model::blob::BlobId::of(b"x");
    for text in [
        r#"{"run":{"echo":{"value":"x","fail":"fatal"}},"not_before":"2026-01-01T00:00:00Z","max_retries":2}"#
            .to_owned(),
        r#"{"run":{"process":{"command":["a","b"],"env":{"A":"B"},"stdin":"in"}},"sandbox":"strict","outputs":["o/**"],
            "limits":{"memory_bytes":1024,"pids":5},"timeout_ms":7,"deadline":"2027-01-01T00:00:00Z",
            "idempotency_key":"k","priority":"batch"}"#
            .to_owned(),
        format!(r#"{{"run":{{"wasm":{{"component":"{blob}","args":["a"]}}}},"inputs":{{"a/b":"{blob}"}}}}"#),
    ] {
        let spec: model::spec::JobSpec = serde_json::from_str(&text).unwrap();
        let seen: serde_json::Value = serde_json::from_str(&decide(&rules, &spec).message.unwrap()).unwrap();
        assert_eq!(seen, serde_json::to_value(&spec).unwrap());
    }
}

#[test]
fn an_explanation_lists_all_rule_verdicts() {
    let rules = job_rules(&format!("{}\n{}\n{}", ALL[0].1, ALL[2].1, ALL[3].1));
    let explained = rules.explain(&JobFacts::of(&echo()), NOW);
    let verdicts: Vec<(&str, &str)> =
        explained.rule_verdicts.iter().map(|verdict| (verdict.verdict, verdict.rule.as_str())).collect();
    assert_eq!(verdicts, [("constrain", "c"), ("deny", "d"), ("throttle", "t")]);
    assert_eq!((explained.verdict, explained.rule.as_str()), ("deny", "d"));
    let json = serde_json::to_value(&explained).unwrap();
    assert_eq!(json["spoke"][2]["for_ms"], 5);
    assert_eq!(json["spoke"][0]["constraints"]["max_retries"], 1);
}

#[test]
fn an_explanation_has_the_print_output() {
    let rules =
        job_rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if { print(\"topic is\", input.topic); false }");
    let explained = rules.explain(&JobFacts::of(&echo()), NOW);
    assert_eq!(explained.printed.len(), 1);
    assert!(explained.printed[0].contains("topic is default"), "{:?}", explained.printed);
}

#[test]
fn data_files_and_libraries_are_available() {
    let rules = load(&[
        ("a.rego", "package outlast.job\nimport data.outlast.lib.h\ndeny contains {\"rule\": \"d\", \"reason\": h.why} if h.bad(input.topic)"),
        ("lib/h.rego", "package outlast.lib.h\nwhy := data.reasons.topic\nbad(topic) if topic in data.topics"),
        ("lib/reasons.json", r#"{"reasons": {"topic": "not this one"}}"#),
        ("topics.json", r#"{"topics": ["default"]}"#),
    ])
    .unwrap();
    assert_eq!(decide(&rules, &echo()).message.as_deref(), Some("not this one"));
    assert_eq!(rules.files(), ["a.rego", "lib/h.rego", "lib/reasons.json", "topics.json"]);
    assert_eq!(rules.reads(), ["input.topic"]);
}
