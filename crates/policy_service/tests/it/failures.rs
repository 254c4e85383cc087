//! Failing policy services, and other servers on the port.

use bytes::Bytes;
use model::verdict::{OutputVerdict, Verdict};
use policy_service::breaker::State;
use policy_service::{Client, Options, POLICY_ERROR, Unavailable, UnavailableReason};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::support::{SHORT_TIMEOUT, ServiceProcess, client, job, options, result, timed_client, wait_until};

async fn unavailable(client: &Client) -> Unavailable {
    client.check(&job()).await.expect_err("the policy service is unavailable")
}

// FEATURES: D1, D9
#[tokio::test]
async fn a_killed_service_is_unavailable() {
    let mut service = ServiceProcess::start().await;
    let client = client(&service.address);
    client.check(&job()).await.unwrap();
    service.kill().await;
    let error = unavailable(&client).await;
    assert_eq!(error.reason, UnavailableReason::Failed);
    assert!(error.message.contains(&service.address), "{error}");
    let error = unavailable(&client).await;
    assert!(error.message.contains("refused"), "{error}");
    assert_eq!(client.status().input.failures, 2);
}

// FEATURES: D9
#[tokio::test]
async fn a_hanging_service_is_unavailable_after_the_timeout() {
    let mut service = ServiceProcess::start().await;
    service.command("hang").await;
    let (client, _clock) = timed_client(&service.address, SHORT_TIMEOUT);
    let error = unavailable(&client).await;
    assert_eq!(error.reason, UnavailableReason::TimedOut);
    assert!(error.message.contains("200ms"), "{error}");
    assert_eq!(client.check_output(&result()).await.unwrap_err().reason, UnavailableReason::TimedOut);
    assert_eq!(client.explain(&job()).await.unwrap_err().reason, UnavailableReason::TimedOut);
    let status = client.status();
    assert_eq!((status.input.timeouts, status.output.timeouts), (2, 1));
    assert!(status.input.last_error.unwrap().message.contains("not answered"));
}

#[tokio::test]
async fn a_service_that_dies_during_a_call_is_unavailable() {
    let mut service = ServiceProcess::start().await;
    service.command("hang").await;
    let client = client(&service.address);
    let call = tokio::spawn({
        let client = client.clone();
        async move { unavailable(&client).await }
    });
    wait_until("the call is in flight", || client.status().in_flight == 1).await;
    service.kill().await;
    assert_eq!(call.await.unwrap().reason, UnavailableReason::Failed);
}

#[tokio::test]
async fn a_service_that_answers_with_an_error_status_is_unavailable() {
    let mut service = ServiceProcess::start().await;
    service.command("fail").await;
    let client = client(&service.address);
    let error = unavailable(&client).await;
    assert_eq!(error.reason, UnavailableReason::Failed);
    assert!(error.message.contains("commanded to fail"), "{error}");
    assert_eq!(client.status().input.failures_in_a_row, 1);
}

#[tokio::test]
async fn an_invalid_answer_denies_and_is_no_failure() {
    let mut service = ServiceProcess::start().await;
    service.command("garble").await;
    let client = client(&service.address);
    for _ in 0..5 {
        let checked = client.check(&job()).await.unwrap();
        assert_eq!((checked.decision.verdict, checked.decision.rule.as_str()), (Verdict::Deny, POLICY_ERROR));
        assert!(checked.error);
        let message = checked.decision.message.unwrap();
        assert!(message.contains("invalid answer") && message.contains("4711"), "{message}");
        let checked = client.check_output(&result()).await.unwrap();
        assert_eq!((checked.decision.verdict, checked.error), (OutputVerdict::Quarantine, true));
        assert_eq!(checked.decision.rule, POLICY_ERROR);
        assert!(!checked.decision.verdict.lets_pass());
    }
    let status = client.status();
    assert_eq!((status.input.denied_invalid, status.output.denied_invalid), (5, 5));
    assert_eq!((status.input.state, status.input.failures), (State::Closed, 0));
    assert!(status.input.last_error.unwrap().message.contains("4711"));
}

#[tokio::test]
async fn an_answer_beyond_the_size_limit_is_a_failure() {
    let mut service = ServiceProcess::start().await;
    service.command("bloat").await;
    let client = client(&service.address);
    assert_eq!(unavailable(&client).await.reason, UnavailableReason::Failed);
    assert_eq!(client.status().input.failures, 1);
}

#[tokio::test]
async fn invalid_argument_denies_and_is_no_failure() {
    let mut service = ServiceProcess::start().await;
    service.command("refuse").await;
    let client = client(&service.address);
    for _ in 0..5 {
        let checked = client.check(&job()).await.unwrap();
        assert_eq!((checked.decision.verdict, checked.error), (Verdict::Deny, true));
        assert!(checked.decision.message.unwrap().contains("commanded to refuse"));
        assert_eq!(client.check_output(&result()).await.unwrap().decision.verdict, OutputVerdict::Quarantine);
    }
    let status = client.status();
    assert_eq!((status.input.denied_refused, status.output.denied_refused), (5, 5));
    assert_eq!((status.input.state, status.input.failures), (State::Closed, 0));
}

#[tokio::test]
async fn a_service_without_explain_still_decides() {
    let mut service = ServiceProcess::start().await;
    service.command("no-explain").await;
    let client = client(&service.address);
    for _ in 0..5 {
        let error = client.explain(&job()).await.unwrap_err();
        assert!(error.message.contains("does not implement Explain"), "{error}");
    }
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
    assert_eq!(client.status().input.state, State::Closed);
}

#[tokio::test]
async fn a_job_beyond_the_size_limit_is_denied_without_a_call() {
    let service = ServiceProcess::start().await;
    let client = Client::connect_lazy(Options { job_bytes_max: 100, ..options(&service.address) }).unwrap();
    let mut facts = job();
    facts.job_json = Bytes::from(vec![b' '; 100]);
    assert_eq!(client.check(&facts).await.unwrap().decision.verdict, Verdict::Allow);
    facts.job_json = Bytes::from(vec![b' '; 101]);
    let checked = client.check(&facts).await.unwrap();
    assert_eq!((checked.decision.verdict, checked.error), (Verdict::Deny, true));
    assert!(client.explain(&facts).await.unwrap().check.error);
    let status = client.status();
    assert_eq!((status.input.calls, status.input.denied_too_large), (1, 2));
}

#[tokio::test]
async fn the_largest_job_fits_the_default_message_limit_of_grpc_servers() {
    let service = ServiceProcess::start().await;
    let client = client(&service.address);
    let mut facts = job();
    facts.job_json = Bytes::from(vec![b' '; policy_service::limits::JOB_BYTES_MAX_DEFAULT]);
    facts.labels = (0..model::limits::LABELS_MAX)
        .map(|number| (format!("{number:0128}"), "x".repeat(model::limits::LABEL_VALUE_BYTES_MAX)))
        .collect();
    assert_eq!(client.check(&facts).await.unwrap().decision.verdict, Verdict::Allow);
}

// FEATURES: D9
#[tokio::test]
async fn random_bytes_on_the_port_are_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let garbage: Vec<u8> = (0..4096u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let server = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.write_all(&garbage).await;
        }
    });
    let client = client(&address);
    for _ in 0..3 {
        assert_eq!(unavailable(&client).await.reason, UnavailableReason::Failed);
    }
    assert_eq!(client.status().input.state, State::Open);
    server.abort();
}

#[tokio::test]
async fn a_silent_server_on_the_port_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, _clock) = timed_client(&listener.local_addr().unwrap().to_string(), SHORT_TIMEOUT);
    assert_eq!(unavailable(&client).await.reason, UnavailableReason::TimedOut);
}

#[tokio::test]
async fn an_unknown_host_is_a_failure() {
    let (client, _clock) = timed_client("policy.invalid:7080", SHORT_TIMEOUT);
    let error = unavailable(&client).await;
    assert!(matches!(error.reason, UnavailableReason::Failed | UnavailableReason::TimedOut), "{error}");
}
