//! Every way in which an answer can be right, and every way in which it can be nonsense.

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
    read_check(answer).expect("an answer that makes sense").verdict.0
}

fn nonsense(answer: CheckResponse) -> String {
    read_check(answer).expect_err("an answer that makes no sense").to_string()
}

// FEATURES: D1
#[test]
fn each_decision_has_its_verdict() {
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
    let asked = CheckResponse { constraints: Some(limit), ..answer(proto::Decision::RequireApproval) };
    let expected = Constraints { max_retries: Some(1), ..Constraints::default() };
    assert_eq!(read_check(asked).unwrap().verdict, (Verdict::RequireApproval, Some(Box::new(expected))));
    let none = CheckResponse { constraints: Some(Default::default()), ..answer(proto::Decision::RequireApproval) };
    assert!(nonsense(none).contains("none of its constraints"));
}

#[test]
fn each_output_decision_has_its_verdict() {
    for (decision, expected) in [
        (proto::OutputDecision::Allow, OutputVerdict::Allow),
        (proto::OutputDecision::Quarantine, OutputVerdict::Quarantine),
        (proto::OutputDecision::Deny, OutputVerdict::Deny),
        (proto::OutputDecision::Redact, OutputVerdict::Redact),
    ] {
        assert_eq!(read_output(output(decision)).unwrap().verdict, (expected, false));
    }
    let kept = CheckOutputResponse { keep_original: true, ..output(proto::OutputDecision::Redact) };
    assert_eq!(read_output(kept).unwrap().verdict, (OutputVerdict::Redact, true));
}

#[test]
fn an_empty_reason_is_none() {
    assert_eq!(read_check(answer(proto::Decision::Deny)).unwrap().message, None);
    let said = CheckResponse { reason: "because".into(), ..answer(proto::Decision::Deny) };
    assert_eq!(read_check(said).unwrap().message.as_deref(), Some("because"));
}

#[test]
fn a_decision_that_is_none_is_nonsense() {
    assert!(nonsense(answer(proto::Decision::Unspecified)).contains("no decision"));
    for number in [-1, 6, i32::MAX] {
        let unknown = CheckResponse { decision: number, ..answer(proto::Decision::Allow) };
        assert!(nonsense(unknown).contains(&number.to_string()));
        let unknown = CheckOutputResponse { decision: number, ..output(proto::OutputDecision::Allow) };
        assert!(read_output(unknown).is_err());
    }
    assert!(read_output(output(proto::OutputDecision::Unspecified)).is_err());
    assert!(read_check(CheckResponse::default()).is_err());
    assert!(read_output(CheckOutputResponse::default()).is_err());
}

#[test]
fn a_rule_is_needed_and_has_its_limit() {
    let ruled = |rule: &str| CheckResponse { rule: rule.into(), ..answer(proto::Decision::Allow) };
    assert!(nonsense(ruled("")).contains("names no rule"));
    assert!(nonsense(ruled("two\nlines")).contains("control characters"));
    assert_eq!(verdict(ruled(&"r".repeat(model_limits::NAME_BYTES_MAX))), Verdict::Allow);
    assert!(nonsense(ruled(&"r".repeat(model_limits::NAME_BYTES_MAX + 1))).contains("129 bytes"));
    let unruled = CheckOutputResponse { rule: String::new(), ..output(proto::OutputDecision::Allow) };
    assert!(read_output(unruled).is_err());
}

#[test]
fn a_reason_and_a_version_have_their_limits() {
    let said = |bytes| CheckResponse { reason: "x".repeat(bytes), ..answer(proto::Decision::Allow) };
    assert_eq!(verdict(said(model_limits::MESSAGE_BYTES_MAX)), Verdict::Allow);
    assert!(nonsense(said(model_limits::MESSAGE_BYTES_MAX + 1)).contains("reason"));
    assert!(read_version(&"v".repeat(limits::VERSION_BYTES_MAX)).is_ok());
    assert!(read_version(&"v".repeat(limits::VERSION_BYTES_MAX + 1)).is_err());
    assert!(read_version("a\u{1b}[2J").is_err());
}

#[test]
fn an_explanation_is_cut_at_its_limits() {
    let line = "x".repeat(model_limits::MESSAGE_BYTES_MAX + 1);
    let trace = read_trace(vec![line; limits::TRACE_LINES_MAX + 1]);
    assert_eq!(trace.len(), limits::TRACE_LINES_MAX);
    assert!(trace.iter().all(|line| line.len() == model_limits::MESSAGE_BYTES_MAX));
}

#[test]
fn a_throttle_has_its_limit() {
    let throttled = |ms| CheckResponse { throttle_for_ms: ms, ..answer(proto::Decision::Throttle) };
    assert_eq!(verdict(throttled(limits::THROTTLE_MAX.0)), Verdict::Throttle(limits::THROTTLE_MAX));
    assert!(nonsense(throttled(limits::THROTTLE_MAX.0 + 1)).contains("throttle_for_ms"));
    assert!(read_check(throttled(u64::MAX)).is_err());
}

#[test]
fn constraints_have_their_limits() {
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
    assert!(nonsense(runtime(0)).contains("never run"));
    assert!(nonsense(runtime(model_limits::DURATION_MAX.0 + 1)).contains("max_runtime_ms"));
    assert!(nonsense(retries(model_limits::RETRIES_MAX + 1)).contains("max_retries"));
    assert!(nonsense(bytes(model_limits::OUTPUT_LIMIT_BYTES_MAX + 1)).contains("max_artifact_bytes"));
    assert!(nonsense(jobs(0)).contains("never run"));
    assert!(nonsense(jobs(limits::CONCURRENT_MAX + 1)).contains("max_concurrent"));
    assert!(nonsense(constrained(proto::Constraints { sandbox: 9, ..Default::default() })).contains("sandbox"));
}

#[test]
fn an_answer_that_contradicts_itself_is_nonsense() {
    let limit = proto::Constraints { max_retries: Some(1), ..Default::default() };
    let allowed = CheckResponse { constraints: Some(limit), ..answer(proto::Decision::Allow) };
    assert!(nonsense(allowed).contains("gives constraints"));
    let denied = CheckResponse { throttle_for_ms: 1, ..answer(proto::Decision::Deny) };
    assert!(nonsense(denied).contains("throttle_for_ms"));
    assert!(nonsense(answer(proto::Decision::AllowWithConstraints)).contains("no constraints"));
    assert!(nonsense(constrained(proto::Constraints::default())).contains("none of its constraints"));
    let kept = CheckOutputResponse { keep_original: true, ..output(proto::OutputDecision::Allow) };
    assert!(read_output(kept).is_err());
}

proptest! {
    #[test]
    fn what_passes_is_always_within_the_limits(
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
        let Ok(ruling) = read_check(answer.clone()) else { return Ok(()) };
        prop_assert!((1..=model_limits::NAME_BYTES_MAX).contains(&ruling.rule.len()));
        match ruling.verdict.0 {
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
    fn any_bytes_as_an_answer_end_without_a_panic(bytes: Vec<u8>) {
        use prost::Message;
        let _ = CheckResponse::decode(bytes.as_slice()).map(read_check);
        let _ = CheckOutputResponse::decode(bytes.as_slice()).map(read_output);
    }
}
