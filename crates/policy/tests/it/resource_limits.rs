//! Rules that would exhaust time or stack, and very large jobs.

use std::thread;

use model::json::Json;
use model::spec::{EchoRun, JobSpec, Run};
use model::verdict::Verdict;
use policy::limits::{BRACKET_DEPTH_MAX, EXPRESSION_LINKS_MAX, RULE_DEPTH_MAX};

use crate::support::{decide, echo, job_rules, load_error};

#[test]
fn an_exponential_comprehension_times_out() {
    let rules = job_rules(
        "deny contains {\"rule\": \"d\", \"reason\": \"r\"} if {
             numbers_ := numbers.range(1, 10000)
             count([[a, b, c] | some a in numbers_; some b in numbers_; some c in numbers_]) > 5
         }",
    );
    let decision = decide(&rules, &echo());
    assert_eq!((decision.verdict, decision.rule.as_str()), (Verdict::Deny, "policy_error"));
    assert!(decision.message.unwrap().contains("longer than 250 ms"));
}

#[test]
fn exponentially_growing_values_time_out() {
    for (first, next) in [("\"xxxxxxxx\"", "concat(\"\", [V, V])"), ("12345678901", "V * V")] {
        let mut body = format!("v0 := {first}\n");
        for n in 1..200 {
            body.push_str(&format!("v{n} := {}\n", next.replace('V', &format!("v{}", n - 1))));
        }
        let rules = job_rules(&format!("deny contains {{\"rule\": \"d\", \"reason\": \"r\"}} if {{\n{body}}}"));
        let decision = decide(&rules, &echo());
        assert_eq!((decision.verdict, decision.rule.as_str()), (Verdict::Deny, "policy_error"));
    }
}

#[test]
fn huge_ranges_and_shifts_are_errors() {
    for call in
        ["numbers.range(1, 1000000000000)", "numbers.range_step(1, 1000000000000, 2)", "bits.lsh(1, 4000000000)"]
    {
        let rules = job_rules(&format!("deny contains {{\"rule\": \"d\", \"reason\": \"r\"}} if {call}"));
        let decision = decide(&rules, &echo());
        assert_eq!(decision.rule, "policy_error", "{call}");
        assert!(decision.message.unwrap().contains("at most"), "{call}");
    }
}

#[test]
fn the_deepest_accepted_rules_fit_a_small_stack() {
    let open = BRACKET_DEPTH_MAX - 2;
    let chain = " + 1".repeat(EXPRESSION_LINKS_MAX / 2);
    let mut text = "deny contains {\"rule\": \"d\", \"reason\": sprintf(\"%d\", [r1])}\n".to_owned();
    for n in 1..RULE_DEPTH_MAX - 1 {
        let inner = format!("{}r{}{}", "sum([".repeat(open / 2), n + 1, "])".repeat(open / 2));
        text.push_str(&format!("r{n} := {inner}{chain}\n"));
    }
    text.push_str(&format!("r{} := 1\n", RULE_DEPTH_MAX - 1));
    let evaluation =
        thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(move || decide(&job_rules(&text), &echo()));
    assert_eq!(evaluation.unwrap().join().unwrap().rule, "d");
}

#[test]
fn deeply_nested_text_is_rejected_before_parsing() {
    for text in [
        format!("x := {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("x := (1{})", " +\n1".repeat(100_000)),
        format!("x := a{}", "[0\n]".repeat(100_000)),
        format!("x := {}1", "-".repeat(500)),
        format!("x if {{ {}true }}", "not ".repeat(200)),
    ] {
        assert!(!load_error(&text).is_empty());
    }
}

#[test]
fn labels_of_a_megabyte_are_evaluated() {
    let rules = job_rules(
        "deny contains {\"rule\": \"d\", \"reason\": \"r\"} if { some _, value in input.labels; endswith(value, \"!\") }",
    );
    let mut spec = echo();
    for n in 0..64 {
        spec.labels.insert(format!("label{n}"), "x".repeat(16 * 1024));
    }
    assert_eq!(decide(&rules, &spec).verdict, Verdict::Allow);
    spec.labels.insert("last".to_owned(), format!("{}!", "x".repeat(1024 * 1024)));
    assert_eq!(decide(&rules, &spec).rule, "d");
}

fn nested(depth: usize) -> JobSpec {
    let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    // Deeper values than `Json::parse` takes may come from records of older versions.
    let value: Json = serde_json::from_str(&text).unwrap();
    JobSpec::new(Run::Echo(EchoRun { value, ..EchoRun::default() }))
}

#[test]
fn a_value_nested_too_deeply_is_denied_only_if_it_is_read() {
    let reading = job_rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.job.run.echo.value == 1");
    assert_eq!(decide(&reading, &nested(100)).verdict, Verdict::Allow);
    let decision = decide(&reading, &nested(100_000));
    assert_eq!(decision.rule, "policy_error");
    assert!(decision.message.unwrap().contains("cannot be converted for the rules"));
    let others = job_rules("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.topic == \"x\"");
    assert_eq!(decide(&others, &nested(100_000)).verdict, Verdict::Allow);
}

#[test]
fn rules_may_be_evaluated_concurrently() {
    let rules = job_rules("deny contains {\"rule\": \"d\", \"reason\": input.topic} if input.topic != \"default\"");
    thread::scope(|scope| {
        for number in 0..8 {
            let rules = &rules;
            scope.spawn(move || {
                let mut spec = echo();
                spec.topic = format!("topic{number}");
                for _ in 0..200 {
                    assert_eq!(decide(rules, &spec).message.as_deref(), Some(spec.topic.as_str()));
                }
            });
        }
    });
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn arbitrary_text_never_panics(text in "[a-z{}\\[\\]():=.,\"|&+ \n]{0,120}") {
        let _ = crate::support::load(&[("a.rego", &format!("package outlast.job\n{text}"))]);
    }
}
