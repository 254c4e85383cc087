//! Throughput of jobs over HTTP: single requests compared with a bare server, and two million jobs in batches.

use std::sync::Arc;
use std::time::Instant;

use client::load::{LoadPlan, Progress, Reply, RequestHead, Tally, Workload};

use crate::Scale;
use crate::report::{Report, Target};
use crate::server::Server;

const SINGLE: &str = "single echo jobs, 256 connections";
const BATCH: &str = "echo jobs in batches of 500, sustained";
const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

/// Requests with one small job each.
pub struct Single {
    head: RequestHead,
    body: Vec<u8>,
}

impl Single {
    pub fn new(server: &Server) -> Self {
        let body = format!(r#"{{"run":{{"echo":{{"value":"{}"}}}}}}"#, "x".repeat(100)).into_bytes();
        Self { head: RequestHead::new("POST", &server.address, "/v1/jobs", &JSON), body }
    }
}

impl Workload for Single {
    fn request(&self, _: u64, body: &mut Vec<u8>) -> &RequestHead {
        body.extend_from_slice(&self.body);
        &self.head
    }

    fn jobs(&self, _: u64) -> u64 {
        1
    }

    fn judge(&self, _: u64, reply: &Reply<'_>) -> Tally {
        let accepted = u64::from(reply.status == 201);
        Tally { accepted, failed: 1 - accepted }
    }
}

/// Batches of jobs, with an idempotency key each if `keys`.
pub struct Batches {
    head: RequestHead,
    size: u64,
    keys: bool,
    delay_ms: u64,
}

impl Batches {
    pub fn new(server: &Server, size: u64, keys: bool, delay_ms: u64) -> Self {
        Self { head: RequestHead::new("POST", &server.address, "/v1/jobs", &JSON), size, keys, delay_ms }
    }
}

impl Workload for Batches {
    fn request(&self, number: u64, body: &mut Vec<u8>) -> &RequestHead {
        use std::io::Write;
        let value = "x".repeat(100);
        body.extend_from_slice(b"{\"jobs\":[");
        for index in 0..self.size {
            if index > 0 {
                body.push(b',');
            }
            // A write to a vector cannot fail.
            let _ = write!(body, r#"{{"run":{{"echo":{{"value":"{value}","delay_ms":{}}}}}"#, self.delay_ms);
            if self.keys {
                let _ = write!(body, r#","idempotency_key":"{number}-{index}""#);
            }
            body.push(b'}');
        }
        body.extend_from_slice(b"]}");
        &self.head
    }

    fn jobs(&self, _: u64) -> u64 {
        self.size
    }

    fn judge(&self, _: u64, reply: &Reply<'_>) -> Tally {
        let refused = reply.body.windows(8).filter(|window| window == b"\"error\":").count() as u64;
        if reply.status != 200 {
            return Tally { accepted: 0, failed: self.size };
        }
        Tally { accepted: self.size - refused, failed: refused }
    }
}

/// Sends all requests. Fails unless every job is accepted.
pub async fn send<W: Workload>(
    server: &Server,
    workload: W,
    requests: u64,
    connections: usize,
) -> anyhow::Result<client::load::LoadReport> {
    let plan = LoadPlan { address: server.address.clone(), requests, connections };
    let outcome = client::load::run(&plan, Arc::new(workload), &Progress::default()).await?;
    if outcome.tally.failed > 0 {
        anyhow::bail!("{} jobs were not accepted: {:?}", outcome.tally.failed, outcome.first_failure);
    }
    Ok(outcome)
}

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if report.selects(SINGLE) {
        runtime.block_on(single(scale, report))?;
    }
    if report.selects(BATCH) {
        runtime.block_on(batches(scale, report))?;
    }
    Ok(())
}

async fn single(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let requests = scale.of(300_000);
    let mut bare = Server::bare()?;
    bare.ready(Instant::now()).await?;
    let reference = send(&bare, Single::new(&bare), requests, 256).await?;
    drop(bare);
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    let begin = Instant::now();
    let outcome = send(&server, Single::new(&server), requests, 256).await?;
    server.drained().await?;
    let seconds = begin.elapsed().as_secs_f64();
    let used = server.cpu_time()?.as_secs_f64();
    let note = format!(
        "accepted in {:.1} s, p50 {:.1} ms p99 {:.1} ms; {:.1} µs CPU per job",
        outcome.elapsed.as_secs_f64(),
        outcome.latencies.quantile(0.5).as_secs_f64() * 1e3,
        outcome.latencies.quantile(0.99).as_secs_f64() * 1e3,
        used * 1e6 / requests as f64
    );
    let reference = ("bare axum server", requests as f64 / reference.elapsed.as_secs_f64());
    report.ratio(SINGLE, "jobs/s", requests as f64 / seconds, reference, Target::AtLeast(0.5), note);
    Ok(())
}

async fn batches(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    let jobs = scale.of(2_000_000);
    let begin = Instant::now();
    send(&server, Batches::new(&server, 500, true, 0), jobs / 500, 8).await?;
    server.drained().await?;
    let seconds = begin.elapsed().as_secs_f64();
    let note = format!(
        "{} jobs, each with an idempotency key; {:.1} µs CPU per job, {:.0} MB resident at the end",
        jobs,
        server.cpu_time()?.as_secs_f64() * 1e6 / jobs as f64,
        server.memory()? as f64 / 1e6
    );
    report.absolute(BATCH, "jobs/s", jobs as f64 / seconds, Target::AtLeast(50_000.0), note);
    Ok(())
}
