//! A kernel that does not work, and things on its port that are no kernel.

use bytes::Bytes;
use kernel::breaker::State;
use kernel::{Client, Options, POLICY_ERROR, Unavailable, Why};
use model::verdict::{OutputVerdict, Verdict};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::common::{BRIEF, Kernel, client, job, options, result, timed_client, until};

async fn unavailable(client: &Client) -> Unavailable {
    client.check(&job()).await.expect_err("the kernel does not work")
}

// FEATURES: D1, D9
#[tokio::test]
async fn a_kernel_that_was_killed_is_unavailable() {
    let mut kernel = Kernel::start().await;
    let client = client(&kernel.address);
    client.check(&job()).await.unwrap();
    kernel.kill().await;
    let error = unavailable(&client).await;
    assert_eq!(error.why, Why::Failed);
    assert!(error.message.contains(&kernel.address), "{error}");
    let error = unavailable(&client).await;
    assert!(error.message.contains("refused"), "{error}");
    assert_eq!(client.status().input.failures, 2);
}

// FEATURES: D9
#[tokio::test]
async fn a_kernel_that_hangs_is_unavailable_when_the_limit_is_over() {
    let mut kernel = Kernel::start().await;
    kernel.behave("hang").await;
    let (client, _clock) = timed_client(&kernel.address, BRIEF);
    let error = unavailable(&client).await;
    assert_eq!(error.why, Why::TimedOut);
    assert!(error.message.contains("200ms"), "{error}");
    assert_eq!(client.check_output(&result()).await.unwrap_err().why, Why::TimedOut);
    assert_eq!(client.explain(&job()).await.unwrap_err().why, Why::TimedOut);
    let status = client.status();
    assert_eq!((status.input.timeouts, status.output.timeouts), (2, 1));
    assert!(status.input.last_error.unwrap().message.contains("not answered"));
}

#[tokio::test]
async fn a_kernel_that_dies_over_a_question_is_unavailable() {
    let mut kernel = Kernel::start().await;
    kernel.behave("hang").await;
    let client = client(&kernel.address);
    let asking = tokio::spawn({
        let client = client.clone();
        async move { unavailable(&client).await }
    });
    until("the question is on its way", || client.status().in_flight == 1).await;
    kernel.kill().await;
    assert_eq!(asking.await.unwrap().why, Why::Failed);
}

#[tokio::test]
async fn a_kernel_that_answers_with_an_error_is_unavailable() {
    let mut kernel = Kernel::start().await;
    kernel.behave("fail").await;
    let client = client(&kernel.address);
    let error = unavailable(&client).await;
    assert_eq!(error.why, Why::Failed);
    assert!(error.message.contains("the rules are on fire"), "{error}");
    assert_eq!(client.status().input.failures_in_a_row, 1);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_lets_nothing_pass_and_is_no_failure() {
    let mut kernel = Kernel::start().await;
    kernel.behave("garble").await;
    let client = client(&kernel.address);
    for _ in 0..5 {
        let checked = client.check(&job()).await.unwrap();
        assert_eq!((checked.decision.verdict, checked.decision.rule.as_str()), (Verdict::Deny, POLICY_ERROR));
        assert!(checked.error);
        let message = checked.decision.message.unwrap();
        assert!(message.contains("makes no sense") && message.contains("4711"), "{message}");
        let checked = client.check_output(&result()).await.unwrap();
        assert_eq!((checked.decision.verdict, checked.error), (OutputVerdict::Quarantine, true));
        assert_eq!(checked.decision.rule, POLICY_ERROR);
        assert!(!checked.decision.verdict.lets_pass());
    }
    let status = client.status();
    assert_eq!((status.input.denied_nonsense, status.output.denied_nonsense), (5, 5));
    assert_eq!((status.input.state, status.input.failures), (State::Closed, 0));
    assert!(status.input.last_error.unwrap().message.contains("4711"));
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read() {
    let mut kernel = Kernel::start().await;
    kernel.behave("bloat").await;
    let client = client(&kernel.address);
    assert_eq!(unavailable(&client).await.why, Why::Failed);
    assert_eq!(client.status().input.failures, 1);
}

#[tokio::test]
async fn a_job_that_the_kernel_cannot_judge_is_denied_and_no_failure() {
    let mut kernel = Kernel::start().await;
    kernel.behave("refuse").await;
    let client = client(&kernel.address);
    for _ in 0..5 {
        let checked = client.check(&job()).await.unwrap();
        assert_eq!((checked.decision.verdict, checked.error), (Verdict::Deny, true));
        assert!(checked.decision.message.unwrap().contains("beyond me"));
        assert_eq!(client.check_output(&result()).await.unwrap().decision.verdict, OutputVerdict::Quarantine);
    }
    let status = client.status();
    assert_eq!((status.input.denied_refused, status.output.denied_refused), (5, 5));
    assert_eq!((status.input.state, status.input.failures), (State::Closed, 0));
}

#[tokio::test]
async fn a_kernel_that_explains_nothing_still_decides() {
    let mut kernel = Kernel::start().await;
    kernel.behave("keep-mum").await;
    let client = client(&kernel.address);
    for _ in 0..5 {
        let error = client.explain(&job()).await.unwrap_err();
        assert!(error.message.contains("explains nothing"), "{error}");
    }
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
    assert_eq!(client.status().input.state, State::Closed);
}

#[tokio::test]
async fn a_job_that_is_too_large_to_ask_about_is_denied_without_asking() {
    let kernel = Kernel::start().await;
    let client = Client::connect_lazy(Options { job_bytes_max: 100, ..options(&kernel.address) }).unwrap();
    let mut facts = job();
    facts.job_json = Bytes::from(vec![b' '; 100]);
    assert_eq!(client.check(&facts).await.unwrap().decision.verdict, Verdict::Allow);
    facts.job_json = Bytes::from(vec![b' '; 101]);
    let checked = client.check(&facts).await.unwrap();
    assert_eq!((checked.decision.verdict, checked.error), (Verdict::Deny, true));
    assert!(client.explain(&facts).await.unwrap().checked.error);
    let status = client.status();
    assert_eq!((status.input.calls, status.input.denied_too_large), (1, 2));
}

#[tokio::test]
async fn the_largest_job_fits_into_what_a_kernel_takes_by_default() {
    let kernel = Kernel::start().await;
    let client = client(&kernel.address);
    let mut facts = job();
    facts.job_json = Bytes::from(vec![b' '; kernel::limits::JOB_BYTES_MAX_DEFAULT]);
    facts.labels = (0..model::limits::LABELS_MAX)
        .map(|number| (format!("{number:0128}"), "x".repeat(model::limits::LABEL_VALUE_BYTES_MAX)))
        .collect();
    assert_eq!(client.check(&facts).await.unwrap().decision.verdict, Verdict::Allow);
}

// FEATURES: D9
#[tokio::test]
async fn garbage_on_the_port_is_no_answer() {
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
        assert_eq!(unavailable(&client).await.why, Why::Failed);
    }
    assert_eq!(client.status().input.state, State::Open);
    server.abort();
}

#[tokio::test]
async fn a_port_that_listens_and_says_nothing_is_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, _clock) = timed_client(&listener.local_addr().unwrap().to_string(), BRIEF);
    assert_eq!(unavailable(&client).await.why, Why::TimedOut);
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_no_answer() {
    let (client, _clock) = timed_client("kernel.invalid:7080", BRIEF);
    let error = unavailable(&client).await;
    assert!(matches!(error.why, Why::Failed | Why::TimedOut), "{error}");
}
