//! Counts of the load generator with working and failing servers.

use std::sync::Arc;

use client::load::{LoadPlan, Progress, Reply, RequestHead, Tally, Workload, run};

use crate::test_server::{Reaction, STREAM_HEAD, TestServer, chunk, json};

struct Fixed {
    head: RequestHead,
}

impl Workload for Fixed {
    fn request(&self, number: u64, body: &mut Vec<u8>) -> &RequestHead {
        body.extend_from_slice(format!("request {number}").as_bytes());
        &self.head
    }

    fn jobs(&self, _: u64) -> u64 {
        2
    }

    fn judge(&self, _: u64, reply: &Reply<'_>) -> Tally {
        match reply.body {
            b"good" => Tally { accepted: 2, failed: 0 },
            _ => Tally { accepted: 1, failed: 1 },
        }
    }
}

fn plan(server: &TestServer, requests: u64, connections: usize) -> (LoadPlan, Arc<Fixed>) {
    let address: client::Address = server.url.parse().unwrap();
    let head = RequestHead::new("POST", &address, "/v1/jobs", &[("Content-Type", "text/plain")]);
    (LoadPlan { address, requests, connections }, Arc::new(Fixed { head }))
}

#[tokio::test]
async fn every_request_is_sent_once_over_the_given_connections() {
    let server = TestServer::start(|number, _| match number % 3 {
        0 => Reaction::Send(format!("{STREAM_HEAD}{}{}0\r\n\r\n", chunk("go"), chunk("od"))),
        1 => json("200 OK", "good"),
        _ => json("200 OK", "half"),
    })
    .await;
    let (plan, workload) = plan(&server, 30, 3);
    let progress = Progress::default();
    let report = run(&plan, workload, &progress).await.unwrap();
    assert_eq!(report.tally, Tally { accepted: 50, failed: 10 });
    assert_eq!(report.latencies.total(), 50);
    assert_eq!(progress.jobs(), 60);
    assert_eq!(report.first_failure.as_deref(), Some("status 200: half"));
    assert_eq!(server.connections(), 3);
    let mut bodies: Vec<_> = server.requests().into_iter().map(|request| request.body).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 30);
}

#[tokio::test]
async fn broken_connections_are_reopened_until_the_failure_limit() {
    let server = TestServer::start(|number, _| match number {
        1 => Reaction::SendAndBreak(String::new()),
        2 => Reaction::SendAndBreak("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood".to_owned()),
        _ => json("200 OK", "good"),
    })
    .await;
    let (few, workload) = plan(&server, 5, 1);
    let report = run(&few, workload, &Progress::default()).await.unwrap();
    assert_eq!(report.tally, Tally { accepted: 8, failed: 2 });
    assert_eq!(server.connections(), 3);

    let server = TestServer::start(|_, _| Reaction::SendAndBreak(String::new())).await;
    let (many, workload) = plan(&server, 100, 2);
    let report = run(&many, workload, &Progress::default()).await.unwrap();
    assert_eq!(report.tally, Tally { accepted: 0, failed: 200 });
    assert!(server.requests().len() <= 6);
}
