//! Closed-loop load: every connection sends a request, waits for the response and sends the next.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::connection::{Connection, Reply};
use super::histogram::Histogram;
use super::request::RequestHead;
use crate::address::Address;

/// Consecutive failures after which a connection stops sending.
const CONNECTION_FAILURES_MAX: u32 = 3;

/// Job counts of one request or of a total run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub accepted: u64,
    pub failed: u64,
}

/// Defines the requests and what counts as success.
pub trait Workload: Send + Sync + 'static {
    /// Writes the body of request `number` to the empty `body` and returns its head.
    fn request(&self, number: u64, body: &mut Vec<u8>) -> &RequestHead;

    /// Number of jobs in request `number`.
    fn jobs(&self, number: u64) -> u64;

    fn judge(&self, number: u64, reply: &Reply<'_>) -> Tally;
}

#[derive(Debug, Clone)]
pub struct LoadPlan {
    pub address: Address,
    /// Total number of requests.
    pub requests: u64,
    /// Number of concurrent connections.
    pub connections: usize,
}

/// Shared count of jobs with a response or error so far.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    pub fn jobs(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Measurements of a run.
#[derive(Debug, Clone, Default)]
pub struct LoadReport {
    pub tally: Tally,
    /// Time from the first request to the last response.
    pub elapsed: Duration,
    pub latencies: Histogram,
    /// First response or error counted as a failure.
    pub first_failure: Option<String>,
}

/// Runs the load. Fails if an initial connection cannot be opened.
pub async fn run<W: Workload>(plan: &LoadPlan, workload: Arc<W>, progress: &Progress) -> io::Result<LoadReport> {
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
            report: LoadReport::default(),
            failures: 0,
        };
        senders.spawn(sender.run(connection));
    }
    let mut total = LoadReport::default();
    while let Some(part) = senders.join_next().await {
        let part = part.map_err(io::Error::other)?;
        total.tally.accepted += part.tally.accepted;
        total.tally.failed += part.tally.failed;
        total.latencies.merge(&part.latencies);
        total.first_failure = total.first_failure.or(part.first_failure);
    }
    total.elapsed = started.elapsed();
    // Requests left over after all senders stopped were never sent.
    for number in next.load(Ordering::Relaxed)..plan.requests {
        total.tally.failed += workload.jobs(number);
    }
    Ok(total)
}

struct Sender<W> {
    plan: LoadPlan,
    workload: Arc<W>,
    next: Arc<AtomicU64>,
    progress: Progress,
    report: LoadReport,
    /// Consecutive failures.
    failures: u32,
}

impl<W: Workload> Sender<W> {
    async fn run(mut self, connection: Connection) -> LoadReport {
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
        self.report
    }

    /// Sends one request, opening a connection if needed. Returns the connection if it is reusable.
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
        self.report.latencies.record(latency, tally.accepted);
        self.report.tally.accepted += tally.accepted;
        if tally.failed > 0 {
            self.fail(tally.failed, || describe(&reply));
        }
        Ok((!reply.closes).then_some(connection))
    }

    fn fail(&mut self, jobs: u64, describe: impl FnOnce() -> String) {
        self.report.tally.failed += jobs;
        if self.report.first_failure.is_none() {
            self.report.first_failure = Some(describe());
        }
    }
}

fn describe(reply: &Reply<'_>) -> String {
    let body = &reply.body[..reply.body.len().min(400)];
    format!("status {}: {}", reply.status, String::from_utf8_lossy(body))
}
