//! Many questions at once: so many are asked, others wait, and those beyond are turned away.

use kernel::breaker::State;
use kernel::{Client, Options, Why};
use model::verdict::Verdict;

use crate::common::{Kernel, job, options, until};

#[tokio::test]
async fn a_crowd_gets_its_answers_through_a_narrow_door() {
    let kernel = Kernel::start().await;
    let client = Client::connect_lazy(Options { in_flight_max: 4, ..options(&kernel.address) }).unwrap();
    let asking: Vec<_> = (0..500)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.check(&job()).await.unwrap().decision.verdict })
        })
        .collect();
    for answer in asking {
        assert_eq!(answer.await.unwrap(), Verdict::Allow);
    }
    let status = client.status();
    assert_eq!((status.input.calls, status.in_flight, status.waiting), (500, 0, 0));
}

#[tokio::test]
async fn so_many_are_under_way_so_many_wait_and_the_next_is_turned_away() {
    let mut kernel = Kernel::start().await;
    kernel.behave("hang").await;
    let options = Options { in_flight_max: 2, waiting_max: 3, ..options(&kernel.address) };
    let client = Client::connect_lazy(options).unwrap();
    let asking: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.check(&job()).await })
        })
        .collect();
    until("the line is full", || client.status().waiting == 3).await;
    assert_eq!((client.status().in_flight, client.status().input.calls), (2, 2));
    let error = client.check(&job()).await.unwrap_err();
    assert_eq!(error.why, Why::Busy);
    let status = client.status().input;
    assert_eq!((status.busy_rejections, status.failures, status.state), (1, 0, State::Closed));
    for call in &asking {
        call.abort();
    }
    until("all have gone", || client.status().in_flight + client.status().waiting == 0).await;
    kernel.behave("work").await;
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}
