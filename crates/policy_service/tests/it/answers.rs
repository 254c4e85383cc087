//! Answers of a working policy service.

use model::id::JobId;
use model::time::Millis;
use model::verdict::{Constraints, FindingCount, OutputVerdict, Phase, PolicyVersion, Verdict};
use policy_service::{CheckFacts, Finding, FindingKind};

use crate::support::{ServiceProcess, client, job, result, spec};

// FEATURES: D1
#[tokio::test]
async fn a_job_is_allowed_constrained_throttled_denied_or_needs_approval() {
    let service = ServiceProcess::start().await;
    let client = client(&service.address);
    let limits = Constraints {
        max_runtime: Some(Millis(60_000)),
        max_retries: Some(1),
        network: Some(false),
        ..Constraints::default()
    };
    for (topic, label, verdict, rule) in [
        ("reports", None, Verdict::Allow, "allow-the-rest"),
        ("limited", None, Verdict::AllowWith(limits), "limited-topic"),
        ("reports", Some("needs_approval"), Verdict::RequireApproval, "approval-label"),
        ("reports", Some("slow_down"), Verdict::Throttle(Millis(1_000)), "slow-down-label"),
        ("forbidden", None, Verdict::Deny, "forbidden-topic"),
    ] {
        let facts = CheckFacts::of(JobId(1), &spec(topic, label), None, Millis(5));
        let checked = client.check(&facts).await.unwrap();
        // The answer has a duration, the decision a point in time.
        let verdict = match verdict {
            Verdict::Throttle(time) => Verdict::Throttle(checked.decision.at + time),
            other => other,
        };
        assert_eq!((checked.decision.verdict, checked.decision.rule.as_str()), (verdict, rule));
        assert!(!checked.error);
    }
    let status = client.status();
    assert_eq!((status.input.calls, status.input.failures, status.output.calls), (5, 0, 0));
}

#[tokio::test]
async fn a_result_with_a_secret_is_quarantined_and_one_without_is_not() {
    let service = ServiceProcess::start().await;
    let client = client(&service.address);
    let count = FindingCount { pattern: "jwt".into(), place: "log".into(), count: 2 };
    let found = |kind| {
        let mut facts = result();
        facts.phase = Phase::Content;
        facts.findings = vec![Finding { kind, count: count.clone() }];
        facts
    };
    let secret = client.check_output(&found(FindingKind::Secret)).await.unwrap();
    assert_eq!(secret.decision.verdict, OutputVerdict::Quarantine);
    assert_eq!((secret.decision.rule.as_str(), secret.decision.phase), ("secret-found", Phase::Content));
    assert_eq!(secret.decision.message.as_deref(), Some("2 of pattern jwt in log"));
    assert_eq!(secret.decision.findings, std::slice::from_ref(&count));
    let personal = client.check_output(&found(FindingKind::Personal)).await.unwrap();
    assert_eq!(personal.decision.verdict, OutputVerdict::Allow);
    assert!(!personal.error && !personal.keep_original);
}

#[tokio::test]
async fn an_explanation_has_the_decision_and_a_trace() {
    let service = ServiceProcess::start().await;
    let client = client(&service.address);
    let facts = CheckFacts::of(JobId(1), &spec("forbidden", None), None, Millis(5));
    let explained = client.explain(&facts).await.unwrap();
    assert_eq!(explained.check.decision.verdict, Verdict::Deny);
    assert_eq!(explained.trace.len(), 2);
    assert!(explained.trace[0].contains("`forbidden`"));
}

#[tokio::test]
async fn the_policy_version_depends_on_the_answer_and_the_address() {
    let service = ServiceProcess::start_with(&["--listen", "127.0.0.1:0", "--policy-version", "seven"]).await;
    let client = client(&service.address);
    assert_eq!((client.policy_version(), client.status().service_version), (None, None));
    let checked = client.check(&job()).await.unwrap();
    let version = PolicyVersion::of(format!("kernel\0{}\0seven", service.address).as_bytes());
    assert_eq!(checked.decision.policy, Some(version));
    assert_eq!(checked.service_version, "seven");
    assert_eq!(client.policy_version(), Some(version));
    assert_eq!(client.status().service_version.as_deref(), Some("seven"));
}

#[tokio::test]
async fn the_status_serialises_to_json() {
    let service = ServiceProcess::start().await;
    let client = client(&service.address);
    client.check(&job()).await.unwrap();
    let shown = serde_json::to_value(client.status()).unwrap();
    assert_eq!(shown["address"], service.address.as_str());
    assert_eq!(shown["tls"], false);
    assert_eq!(shown["input"]["state"], "closed");
    assert_eq!(shown["input"]["calls"], 1);
    assert_eq!(shown["input"]["transitions"]["opened"], 0);
}
