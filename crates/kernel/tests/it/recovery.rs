//! The breaker around a real kernel: it opens, finds out, and closes. No test waits for its thirty seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel::breaker::State;
use kernel::{Client, Why, limits};
use model::time::Millis;
use model::verdict::Verdict;
use tokio::net::{TcpListener, TcpStream};

use crate::common::{BRIEF, Kernel, PATIENT, job, result, timed_client, until};

async fn fails(client: &Client, times: usize) {
    for _ in 0..times {
        assert_eq!(client.check(&job()).await.unwrap_err().why, Why::Failed);
    }
}

async fn works(client: &Client) {
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}

async fn is_turned_away(client: &Client) {
    let error = client.check(&job()).await.unwrap_err();
    assert_eq!(error.why, Why::CircuitOpen, "{error}");
    assert!(error.retry_at.is_some());
}

// FEATURES: D9
#[tokio::test]
async fn the_circuit_opens_after_three_failures_and_closes_after_two_successes() {
    let mut kernel = Kernel::start().await;
    let (client, clock) = timed_client(&kernel.address, PATIENT);
    kernel.behave("fail").await;
    fails(&client, 3).await;
    let opened = client.status().input;
    assert_eq!((opened.state, opened.calls, opened.transitions.opened), (State::Open, 3, 1));
    assert_eq!(opened.open_until.unwrap().0, opened.opened_at.unwrap().0 + limits::OPEN_FOR);

    kernel.behave("work").await;
    clock.pass(limits::OPEN_FOR - Millis(1));
    is_turned_away(&client).await;
    let status = client.status().input;
    assert_eq!((status.calls, status.open_rejections), (3, 1), "the kernel was not asked");

    clock.pass(Millis(1));
    assert_eq!(client.status().input.state, State::HalfOpen);
    works(&client).await;
    assert_eq!(client.status().input.state, State::HalfOpen);
    works(&client).await;
    let closed = client.status().input;
    assert_eq!((closed.state, closed.transitions.closed, closed.open_until), (State::Closed, 1, None));
}

// FEATURES: D9
#[tokio::test]
async fn a_probe_that_fails_opens_the_circuit_again() {
    let mut kernel = Kernel::start().await;
    let (client, clock) = timed_client(&kernel.address, PATIENT);
    kernel.behave("fail").await;
    fails(&client, 3).await;
    clock.pass(limits::OPEN_FOR);
    fails(&client, 1).await;
    is_turned_away(&client).await;
    assert_eq!(client.status().input.transitions.opened, 2);
}

// FEATURES: D9
#[tokio::test]
async fn a_kernel_that_was_killed_and_started_again_is_found() {
    let mut kernel = Kernel::start().await;
    let (client, clock) = timed_client(&kernel.address, PATIENT);
    works(&client).await;
    kernel.kill().await;
    fails(&client, 3).await;
    is_turned_away(&client).await;
    let _kernel = Kernel::start_with(&["--listen", &kernel.address]).await;
    clock.pass(limits::OPEN_FOR);
    works(&client).await;
    works(&client).await;
    assert_eq!(client.status().input.state, State::Closed);
}

/// Stands between client and kernel. While `cut`, new connections are taken and lead nowhere, for ever.
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
async fn a_probe_does_not_go_over_the_connection_that_failed() {
    let kernel = Kernel::start().await;
    let cut = Arc::new(AtomicBool::new(true));
    let address = relay(kernel.address.clone(), Arc::clone(&cut)).await;
    let (client, clock) = timed_client(&address, Duration::from_secs(1));
    for _ in 0..3 {
        probe(&client).await.unwrap();
    }
    assert_eq!(client.status().input.state, State::Open);
    cut.store(false, Ordering::SeqCst);
    let recovers = async {
        // On a machine that is busy, a probe may take too long; then there is another.
        while client.status().input.state != State::Closed {
            clock.pass(limits::OPEN_FOR);
            probe(&client).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENT, recovers).await.expect("the connection that leads nowhere was given up");
}

#[tokio::test]
async fn results_and_jobs_have_a_breaker_each() {
    let mut kernel = Kernel::start().await;
    let (client, _clock) = timed_client(&kernel.address, PATIENT);
    kernel.behave("fail").await;
    for _ in 0..3 {
        assert_eq!(client.check_output(&result()).await.unwrap_err().why, Why::Failed);
    }
    kernel.behave("work").await;
    assert_eq!(client.check_output(&result()).await.unwrap_err().why, Why::CircuitOpen);
    works(&client).await;
    assert_eq!(client.status().input.state, State::Closed);
}

#[tokio::test]
async fn all_clones_share_one_breaker() {
    let mut kernel = Kernel::start().await;
    let (client, _clock) = timed_client(&kernel.address, PATIENT);
    kernel.behave("fail").await;
    for _ in 0..3 {
        fails(&client.clone(), 1).await;
    }
    is_turned_away(&client).await;
}

// FEATURES: D9
#[tokio::test]
async fn half_open_three_probes_are_under_way_at_a_time() {
    let mut kernel = Kernel::start().await;
    let (client, clock) = timed_client(&kernel.address, PATIENT);
    kernel.behave("fail").await;
    fails(&client, 3).await;
    kernel.behave("hang").await;
    clock.pass(limits::OPEN_FOR);
    let probes: Vec<_> = (0..limits::PROBES_MAX).map(|_| probe(&client)).collect();
    until("all probes are under way", || client.status().input.calls == 6).await;
    is_turned_away(&client).await;
    for probe in &probes {
        probe.abort();
    }
    until("their callers have gone", || client.status().in_flight == 0).await;
    kernel.behave("work").await;
    works(&client).await;
    works(&client).await;
    assert_eq!(client.status().input.state, State::Closed, "a caller that goes gives its probe's place back");
}

#[tokio::test]
async fn an_answer_from_before_the_circuit_opened_does_not_count() {
    let mut kernel = Kernel::start().await;
    let (client, clock) = timed_client(&kernel.address, BRIEF);
    kernel.behave("hang").await;
    let answers: Vec<_> = (0..8).map(|_| probe(&client)).collect();
    for answer in answers {
        answer.await.unwrap();
    }
    let status = client.status().input;
    assert_eq!((status.state, status.transitions.opened), (State::Open, 1));
    assert_eq!(status.late_reports + 3 + status.open_rejections, 8);
    clock.pass(limits::OPEN_FOR);
    assert_eq!(client.status().input.state, State::HalfOpen);
}

fn probe(client: &Client) -> tokio::task::JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        let _ = client.check(&job()).await;
    })
}
