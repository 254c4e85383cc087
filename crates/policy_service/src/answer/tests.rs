//! All kinds of valid and invalid answers.

use proptest::prelude::*;

use super::*;
use crate::proto::{CheckOutputResponse, CheckResponse};

fn answer(decision: proto::Decision) -> CheckResponse {
    CheckResponse { decision: decision as i32, rule: "a-rule".into(), ..CheckResponse::default() }
}

fn constrained(constraints: proto::Constraints) -> CheckResponse {
    CheckResponse { constraints: Some(constraints), ..answer(proto::Decision::AllowWithConstraints) }
}

fn output(decision: proto::OutputDecision) -> CheckOutputResponse {
    CheckOutputResponse { decision: decision as i32, rule: "a-rule".into(), ..CheckOutputResponse::default() }
}

fn verdict(answer: CheckResponse) -> Verdict {
    parse_check(answer).expect("a valid answer").verdict.0
}

fn invalid(answer: CheckResponse) -> String {
    parse_check(answer).expect_err("an invalid answer").to_string()
}

// FEATURES: D1
#[test]
fn each_decision_maps_to_its_verdict() {
    assert_eq!(verdict(answer(proto::Decision::Allow)), Verdict::Allow);
    assert_eq!(verdict(answer(proto::Decision::RequireApproval)), Verdict::RequireApproval);
    assert_eq!(verdict(answer(proto::Decision::Deny)), Verdict::Deny);
    assert_eq!(verdict(answer(proto::Decision::Throttle)), Verdict::Throttle(Millis(5_000)));
    let throttled = CheckResponse { throttle_for_ms: 70, ..answer(proto::Decision::Throttle) };
    assert_eq!(verdict(throttled), Verdict::Throttle(Millis(70)));
    let all = proto::Constraints {
        max_runtime_ms: Some(1),
        max_retries: Some(0),
        max_artifact_bytes: Some(0),
        max_concurrent: Some(1),
        sandbox: proto::Sandbox::Strict as i32,
        network: Some(false),
    };
    let expected = Constraints {
        max_runtime: Some(Millis(1)),
        max_retries: Some(0),
        max_artifact_bytes: Some(0),
        max_concurrent: Some(1),
        sandbox: Some(Sandbox::Strict),
        network: Some(false),
    };
    assert_eq!(verdict(constrained(all)), Verdict::AllowWith(expected));
}

#[test]
fn an_approval_may_come_with_constraints() {
    let limit = proto::Constraints { max_retries: Some(1), ..Default::default() };
    let approval = CheckResponse { constraints: Some(limit), ..answer(proto::Decision::RequireApproval) };
    let expected = Constraints { max_retries: Some(1), ..Constraints::default() };
    assert_eq!(parse_check(approval).unwrap().verdict, (Verdict::RequireApproval, Some(Box::new(expected))));
    let none = CheckResponse { constraints: Some(Default::default()), ..answer(proto::Decision::RequireApproval) };
    assert!(invalid(none).contains("no known constraint"));
}

#[test]
fn each_output_decision_maps_to_its_verdict() {
    for (decision, expected) in [
        (proto::OutputDecision::Allow, OutputVerdict::Allow),
        (proto::OutputDecision::Quarantine, OutputVerdict::Quarantine),
        (proto::OutputDecision::Deny, OutputVerdict::Deny),
        (proto::OutputDecision::Redact, OutputVerdict::Redact),
    ] {
        assert_eq!(parse_output(output(decision)).unwrap().verdict, (expected, false));
    }
    let kept = CheckOutputResponse { keep_original: true, ..output(proto::OutputDecision::Redact) };
    assert_eq!(parse_output(kept).unwrap().verdict, (OutputVerdict::Redact, true));
}

#[test]
fn an_empty_reason_is_none() {
    assert_eq!(parse_check(answer(proto::Decision::Deny)).unwrap().message, None);
    let with_reason = CheckResponse { reason: "because".into(), ..answer(proto::Decision::Deny) };
    assert_eq!(parse_check(with_reason).unwrap().message.as_deref(), Some("because"));
}

#[test]
fn an_unknown_or_missing_decision_is_invalid() {
    assert!(invalid(answer(proto::Decision::Unspecified)).contains("no decision"));
    for number in [-1, 6, i32::MAX] {
        let unknown = CheckResponse { decision: number, ..answer(proto::Decision::Allow) };
        assert!(invalid(unknown).contains(&number.to_string()));
        let unknown = CheckOutputResponse { decision: number, ..output(proto::OutputDecision::Allow) };
        assert!(parse_output(unknown).is_err());
    }
    assert!(parse_output(output(proto::OutputDecision::Unspecified)).is_err());
    assert!(parse_check(CheckResponse::default()).is_err());
    assert!(parse_output(CheckOutputResponse::default()).is_err());
}

#[test]
fn a_rule_is_required_and_limited_in_length() {
    let with_rule = |rule: &str| CheckResponse { rule: rule.into(), ..answer(proto::Decision::Allow) };
    assert!(invalid(with_rule("")).contains("no rule"));
    assert!(invalid(with_rule("two\nlines")).contains("control characters"));
    assert_eq!(verdict(with_rule(&"r".repeat(model_limits::NAME_BYTES_MAX))), Verdict::Allow);
    assert!(invalid(with_rule(&"r".repeat(model_limits::NAME_BYTES_MAX + 1))).contains("129 bytes"));
    let without_rule = CheckOutputResponse { rule: String::new(), ..output(proto::OutputDecision::Allow) };
    assert!(parse_output(without_rule).is_err());
}

#[test]
fn a_reason_and_a_version_are_limited_in_length() {
    let with_reason = |bytes| CheckResponse { reason: "x".repeat(bytes), ..answer(proto::Decision::Allow) };
    assert_eq!(verdict(with_reason(model_limits::MESSAGE_BYTES_MAX)), Verdict::Allow);
    assert!(invalid(with_reason(model_limits::MESSAGE_BYTES_MAX + 1)).contains("reason"));
    assert!(parse_version(&"v".repeat(limits::VERSION_BYTES_MAX)).is_ok());
    assert!(parse_version(&"v".repeat(limits::VERSION_BYTES_MAX + 1)).is_err());
    assert!(parse_version("a\u{1b}[2J").is_err());
}

#[test]
fn an_explanation_is_cut_at_its_limits() {
    let line = "x".repeat(model_limits::MESSAGE_BYTES_MAX + 1);
    let trace = truncate_trace(vec![line; limits::TRACE_LINES_MAX + 1]);
    assert_eq!(trace.len(), limits::TRACE_LINES_MAX);
    assert!(trace.iter().all(|line| line.len() == model_limits::MESSAGE_BYTES_MAX));
}

#[test]
fn a_throttle_is_limited_in_time() {
    let throttled = |ms| CheckResponse { throttle_for_ms: ms, ..answer(proto::Decision::Throttle) };
    assert_eq!(verdict(throttled(limits::THROTTLE_MAX.0)), Verdict::Throttle(limits::THROTTLE_MAX));
    assert!(invalid(throttled(limits::THROTTLE_MAX.0 + 1)).contains("throttle_for_ms"));
    assert!(parse_check(throttled(u64::MAX)).is_err());
}

#[test]
fn constraints_are_limited() {
    let runtime = |ms| constrained(proto::Constraints { max_runtime_ms: Some(ms), ..Default::default() });
    let retries = |count| constrained(proto::Constraints { max_retries: Some(count), ..Default::default() });
    let bytes = |count| constrained(proto::Constraints { max_artifact_bytes: Some(count), ..Default::default() });
    let jobs = |count| constrained(proto::Constraints { max_concurrent: Some(count), ..Default::default() });
    for sound in [
        runtime(1),
        runtime(model_limits::DURATION_MAX.0),
        retries(0),
        retries(model_limits::RETRIES_MAX),
        bytes(0),
        bytes(model_limits::OUTPUT_LIMIT_BYTES_MAX),
        jobs(1),
        jobs(limits::CONCURRENT_MAX),
    ] {
        assert!(matches!(verdict(sound), Verdict::AllowWith(_)));
    }
    assert!(invalid(runtime(0)).contains("never run"));
    assert!(invalid(runtime(model_limits::DURATION_MAX.0 + 1)).contains("max_runtime_ms"));
    assert!(invalid(retries(model_limits::RETRIES_MAX + 1)).contains("max_retries"));
    assert!(invalid(bytes(model_limits::OUTPUT_LIMIT_BYTES_MAX + 1)).contains("max_artifact_bytes"));
    assert!(invalid(jobs(0)).contains("never run"));
    assert!(invalid(jobs(limits::CONCURRENT_MAX + 1)).contains("max_concurrent"));
    assert!(invalid(constrained(proto::Constraints { sandbox: 9, ..Default::default() })).contains("sandbox"));
}

#[test]
fn a_contradictory_answer_is_invalid() {
    let limit = proto::Constraints { max_retries: Some(1), ..Default::default() };
    let allowed = CheckResponse { constraints: Some(limit), ..answer(proto::Decision::Allow) };
    assert!(invalid(allowed).contains("constraints with"));
    let denied = CheckResponse { throttle_for_ms: 1, ..answer(proto::Decision::Deny) };
    assert!(invalid(denied).contains("throttle_for_ms"));
    assert!(invalid(answer(proto::Decision::AllowWithConstraints)).contains("no constraints"));
    assert!(invalid(constrained(proto::Constraints::default())).contains("no known constraint"));
    let kept = CheckOutputResponse { keep_original: true, ..output(proto::OutputDecision::Allow) };
    assert!(parse_output(kept).is_err());
}

proptest! {
    #[test]
    fn valid_answers_are_within_the_limits(
        decision in -1..8i32,
        rule in ".{0,140}",
        given: bool,
        max_runtime_ms: Option<u64>,
        max_concurrent: Option<u32>,
        sandbox in -1..6i32,
        throttle_for_ms in prop_oneof![Just(0), any::<u64>()],
    ) {
        let constraints = proto::Constraints { max_runtime_ms, max_concurrent, sandbox, ..Default::default() };
        let constraints = given.then_some(constraints);
        let answer = CheckResponse { decision, rule, constraints, throttle_for_ms, ..CheckResponse::default() };
        let Ok(parsed) = parse_check(answer.clone()) else { return Ok(()) };
        prop_assert!((1..=model_limits::NAME_BYTES_MAX).contains(&parsed.rule.len()));
        match parsed.verdict.0 {
            Verdict::Allow => prop_assert_eq!((decision, given), (1, false)),
            Verdict::AllowWith(constraints) => {
                prop_assert_eq!((decision, given), (2, true));
                prop_assert!(constraints.max_runtime.is_none_or(|time| time <= model_limits::DURATION_MAX));
                prop_assert!(constraints.max_concurrent.is_none_or(|count| count > 0));
            }
            Verdict::RequireApproval => prop_assert_eq!(decision, 3),
            Verdict::Deny => prop_assert_eq!(decision, 4),
            Verdict::Throttle(time) => prop_assert!(decision == 5 && time <= limits::THROTTLE_MAX && time > Millis(0)),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        use prost::Message;
        let _ = CheckResponse::decode(bytes.as_slice()).map(parse_check);
        let _ = CheckOutputResponse::decode(bytes.as_slice()).map(parse_output);
    }
}
