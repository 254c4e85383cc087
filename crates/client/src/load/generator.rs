//! The closed loop: every connection sends, waits for the answer, and sends again, until everything was sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::connection::{Connection, Reply};
use super::histogram::Histogram;
use super::request::RequestHead;
use crate::address::Address;

/// How often in a row one connection may fail before its part of the load is given up.
const CONNECTION_FAILURES_MAX: u32 = 3;

/// What became of the jobs of one request, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub accepted: u64,
    pub failed: u64,
}

/// What is sent, and what counts as success.
pub trait Workload: Send + Sync + 'static {
    /// Appends the body of request `number` to `body` (which is empty), and names the head it goes with.
    fn request(&self, number: u64, body: &mut Vec<u8>) -> &RequestHead;

    /// How many jobs request `number` carries.
    fn jobs(&self, number: u64) -> u64;

    fn judge(&self, number: u64, reply: &Reply<'_>) -> Tally;
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub address: Address,
    /// How many requests are sent in all.
    pub requests: u64,
    /// How many connections send them.
    pub connections: usize,
}

/// How many jobs have been answered so far, for whoever wants to watch.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    pub fn jobs(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub tally: Tally,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    pub latencies: Histogram,
    /// The first answer or error that counted as a failure.
    pub first_failure: Option<String>,
}

/// Sends everything. An error means that not even one connection could be made.
pub async fn run<W: Workload>(plan: &Plan, workload: Arc<W>, progress: &Progress) -> io::Result<Outcome> {
    let mut connections = Vec::with_capacity(plan.connections);
    for _ in 0..plan.connections.max(1) {
        connections.push(Connection::open(&plan.address).await?);
    }
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut senders = JoinSet::new();
    for connection in connections {
        let sender = Sender {
            plan: plan.clone(),
            workload: Arc::clone(&workload),
            next: Arc::clone(&next),
            progress: progress.clone(),
            outcome: Outcome::default(),
            failures: 0,
        };
        senders.spawn(sender.run(connection));
    }
    let mut whole = Outcome::default();
    while let Some(part) = senders.join_next().await {
        let part = part.map_err(io::Error::other)?;
        whole.tally.accepted += part.tally.accepted;
        whole.tally.failed += part.tally.failed;
        whole.latencies.merge(&part.latencies);
        whole.first_failure = whole.first_failure.or(part.first_failure);
    }
    whole.elapsed = started.elapsed();
    // What was left when the last sender gave up was never sent.
    for number in next.load(Ordering::Relaxed)..plan.requests {
        whole.tally.failed += workload.jobs(number);
    }
    Ok(whole)
}

struct Sender<W> {
    plan: Plan,
    workload: Arc<W>,
    next: Arc<AtomicU64>,
    progress: Progress,
    outcome: Outcome,
    /// In a row.
    failures: u32,
}

impl<W: Workload> Sender<W> {
    async fn run(mut self, connection: Connection) -> Outcome {
        let mut connection = Some(connection);
        let (mut body, mut request) = (Vec::new(), Vec::new());
        while self.failures < CONNECTION_FAILURES_MAX {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.plan.requests {
                break;
            }
            body.clear();
            self.workload.request(number, &mut body).write(&body, &mut request);
            match self.send(connection.take(), number, &request).await {
                Ok(open) => {
                    connection = open;
                    self.failures = 0;
                }
                Err(error) => {
                    self.failures += 1;
                    self.fail(self.workload.jobs(number), || error.to_string());
                }
            }
            self.progress.0.fetch_add(self.workload.jobs(number), Ordering::Relaxed);
        }
        self.outcome
    }

    /// One request, over a new connection where there is none; gives the connection back if it can be used again.
    async fn send(
        &mut self,
        connection: Option<Connection>,
        number: u64,
        request: &[u8],
    ) -> io::Result<Option<Connection>> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => Connection::open(&self.plan.address).await?,
        };
        let sent = Instant::now();
        let reply = connection.exchange(request).await?;
        let latency = sent.elapsed();
        let tally = self.workload.judge(number, &reply);
        self.outcome.latencies.record(latency, tally.accepted);
        self.outcome.tally.accepted += tally.accepted;
        if tally.failed > 0 {
            self.fail(tally.failed, || describe(&reply));
        }
        Ok((!reply.closes).then_some(connection))
    }

    fn fail(&mut self, jobs: u64, describe: impl FnOnce() -> String) {
        self.outcome.tally.failed += jobs;
        if self.outcome.first_failure.is_none() {
            self.outcome.first_failure = Some(describe());
        }
    }
}

fn describe(reply: &Reply<'_>) -> String {
    let body = &reply.body[..reply.body.len().min(400)];
    format!("status {}: {}", reply.status, String::from_utf8_lossy(body))
}
