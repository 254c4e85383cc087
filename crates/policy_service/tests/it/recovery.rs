//! Breaker and policy service together. A manual clock replaces the thirty seconds of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::time::Millis;
use model::verdict::Verdict;
use policy_service::breaker::State;
use policy_service::{Client, UnavailableReason, limits};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{LONG_TIMEOUT, SHORT_TIMEOUT, ServiceProcess, job, result, timed_client, wait_until};

async fn assert_fails(client: &Client, times: usize) {
    for _ in 0..times {
        assert_eq!(client.check(&job()).await.unwrap_err().reason, UnavailableReason::Failed);
    }
}

async fn assert_allowed(client: &Client) {
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}

async fn assert_rejected(client: &Client) {
    let error = client.check(&job()).await.unwrap_err();
    assert_eq!(error.reason, UnavailableReason::CircuitOpen, "{error}");
    assert!(error.retry_at.is_some());
}

// FEATURES: D9
#[tokio::test]
async fn the_circuit_opens_after_three_failures_and_closes_after_two_successes() {
    let mut service = ServiceProcess::start().await;
    let (client, clock) = timed_client(&service.address, LONG_TIMEOUT);
    service.command("fail").await;
    assert_fails(&client, 3).await;
    let opened = client.status().input;
    assert_eq!((opened.state, opened.calls, opened.transitions.opened), (State::Open, 3, 1));
    assert_eq!(opened.open_until.unwrap().0, opened.opened_at.unwrap().0 + limits::OPEN_FOR);

    service.command("work").await;
    clock.advance(limits::OPEN_FOR - Millis(1));
    assert_rejected(&client).await;
    let status = client.status().input;
    assert_eq!((status.calls, status.open_rejections), (3, 1), "no call was made");

    clock.advance(Millis(1));
    assert_eq!(client.status().input.state, State::HalfOpen);
    assert_allowed(&client).await;
    assert_eq!(client.status().input.state, State::HalfOpen);
    assert_allowed(&client).await;
    let closed = client.status().input;
    assert_eq!((closed.state, closed.transitions.closed, closed.open_until), (State::Closed, 1, None));
}

// FEATURES: D9
#[tokio::test]
async fn a_probe_that_fails_opens_the_circuit_again() {
    let mut service = ServiceProcess::start().await;
    let (client, clock) = timed_client(&service.address, LONG_TIMEOUT);
    service.command("fail").await;
    assert_fails(&client, 3).await;
    clock.advance(limits::OPEN_FOR);
    assert_fails(&client, 1).await;
    assert_rejected(&client).await;
    assert_eq!(client.status().input.transitions.opened, 2);
}

// FEATURES: D9
#[tokio::test]
async fn a_restarted_service_is_used_again() {
    let mut service = ServiceProcess::start().await;
    let (client, clock) = timed_client(&service.address, LONG_TIMEOUT);
    assert_allowed(&client).await;
    service.kill().await;
    assert_fails(&client, 3).await;
    assert_rejected(&client).await;
    let _service = ServiceProcess::start_with(&["--listen", &service.address]).await;
    clock.advance(limits::OPEN_FOR);
    assert_allowed(&client).await;
    assert_allowed(&client).await;
    assert_eq!(client.status().input.state, State::Closed);
}

/// A relay between client and service. While `cut`, it accepts new connections and forwards nothing.
async fn relay(to: String, cut: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut lost = Vec::new();
        while let Ok((mut near, _)) = listener.accept().await {
            if cut.load(Ordering::SeqCst) {
                lost.push(near);
                continue;
            }
            let mut far = TcpStream::connect(&to).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    address
}

#[tokio::test]
async fn a_probe_uses_a_new_connection() {
    let service = ServiceProcess::start().await;
    let cut = Arc::new(AtomicBool::new(true));
    let address = relay(service.address.clone(), Arc::clone(&cut)).await;
    let (client, clock) = timed_client(&address, Duration::from_secs(1));
    for _ in 0..3 {
        probe(&client).await.unwrap();
    }
    assert_eq!(client.status().input.state, State::Open);
    cut.store(false, Ordering::SeqCst);
    let recovery = async {
        // On a busy machine a probe may time out; then the next one follows.
        while client.status().input.state != State::Closed {
            clock.advance(limits::OPEN_FOR);
            probe(&client).await.unwrap();
        }
    };
    tokio::time::timeout(LONG_TIMEOUT, recovery).await.expect("the failed connection is replaced");
}

#[tokio::test]
async fn jobs_and_results_have_separate_breakers() {
    let mut service = ServiceProcess::start().await;
    let (client, _clock) = timed_client(&service.address, LONG_TIMEOUT);
    service.command("fail").await;
    for _ in 0..3 {
        assert_eq!(client.check_output(&result()).await.unwrap_err().reason, UnavailableReason::Failed);
    }
    service.command("work").await;
    assert_eq!(client.check_output(&result()).await.unwrap_err().reason, UnavailableReason::CircuitOpen);
    assert_allowed(&client).await;
    assert_eq!(client.status().input.state, State::Closed);
}

#[tokio::test]
async fn all_clones_share_one_breaker() {
    let mut service = ServiceProcess::start().await;
    let (client, _clock) = timed_client(&service.address, LONG_TIMEOUT);
    service.command("fail").await;
    for _ in 0..3 {
        assert_fails(&client.clone(), 1).await;
    }
    assert_rejected(&client).await;
}

// FEATURES: D9
#[tokio::test]
async fn half_open_three_probes_are_in_flight_at_a_time() {
    let mut service = ServiceProcess::start().await;
    let (client, clock) = timed_client(&service.address, LONG_TIMEOUT);
    service.command("fail").await;
    assert_fails(&client, 3).await;
    service.command("hang").await;
    clock.advance(limits::OPEN_FOR);
    let probes: Vec<_> = (0..limits::PROBES_MAX).map(|_| probe(&client)).collect();
    wait_until("all probes are in flight", || client.status().input.calls == 6).await;
    assert_rejected(&client).await;
    for probe in &probes {
        probe.abort();
    }
    wait_until("the probes are dropped", || client.status().in_flight == 0).await;
    service.command("work").await;
    assert_allowed(&client).await;
    assert_allowed(&client).await;
    assert_eq!(client.status().input.state, State::Closed, "a dropped probe frees its slot");
}

#[tokio::test]
async fn an_outcome_from_before_the_circuit_opened_does_not_count() {
    let mut service = ServiceProcess::start().await;
    let (client, clock) = timed_client(&service.address, SHORT_TIMEOUT);
    service.command("hang").await;
    let answers: Vec<_> = (0..8).map(|_| probe(&client)).collect();
    for answer in answers {
        answer.await.unwrap();
    }
    let status = client.status().input;
    assert_eq!((status.state, status.transitions.opened), (State::Open, 1));
    assert_eq!(status.late_reports + 3 + status.open_rejections, 8);
    clock.advance(limits::OPEN_FOR);
    assert_eq!(client.status().input.state, State::HalfOpen);
}

fn probe(client: &Client) -> tokio::task::JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        let _ = client.check(&job()).await;
    })
}
