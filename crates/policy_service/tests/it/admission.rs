//! Concurrent calls: bounded in flight, bounded waiting, the rest rejected.

use model::verdict::Verdict;
use policy_service::breaker::State;
use policy_service::{Client, Options, UnavailableReason};

use crate::support::{ServiceProcess, job, options, wait_until};

#[tokio::test]
async fn all_waiting_calls_are_answered_with_few_in_flight() {
    let service = ServiceProcess::start().await;
    let client = Client::connect_lazy(Options { in_flight_max: 4, ..options(&service.address) }).unwrap();
    let calls: Vec<_> = (0..500)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.check(&job()).await.unwrap().decision.verdict })
        })
        .collect();
    for answer in calls {
        assert_eq!(answer.await.unwrap(), Verdict::Allow);
    }
    let status = client.status();
    assert_eq!((status.input.calls, status.in_flight, status.waiting), (500, 0, 0));
}

#[tokio::test]
async fn calls_beyond_the_limits_in_flight_and_waiting_are_rejected() {
    let mut service = ServiceProcess::start().await;
    service.command("hang").await;
    let options = Options { in_flight_max: 2, waiting_max: 3, ..options(&service.address) };
    let client = Client::connect_lazy(options).unwrap();
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.check(&job()).await })
        })
        .collect();
    wait_until("the wait queue is full", || client.status().waiting == 3).await;
    assert_eq!((client.status().in_flight, client.status().input.calls), (2, 2));
    let error = client.check(&job()).await.unwrap_err();
    assert_eq!(error.reason, UnavailableReason::Busy);
    let status = client.status().input;
    assert_eq!((status.busy_rejections, status.failures, status.state), (1, 0, State::Closed));
    for call in &calls {
        call.abort();
    }
    wait_until("all calls are dropped", || client.status().in_flight + client.status().waiting == 0).await;
    service.command("work").await;
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}
