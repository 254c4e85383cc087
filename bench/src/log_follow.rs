//! Cost of following a log: a job writes 100 MB to a followed log, compared with the same job writing to a file.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, ensure};
use client::load::{Connection, RequestHead};
use serde_json::{Value, json};

use crate::Scale;
use crate::report::{Report, Target};
use crate::server::Server;

const NAME: &str = "job writing 100 MB to a followed log";
/// Lines that make up 100 MB.
const LINES: u64 = 12_350_000;
const ROUNDS: u64 = 5;

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.selects(NAME) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(scale, report))
}

async fn run(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let config = dir.path().join("config.yaml");
    // The log limit is above 100 MB: nothing is dropped, so the follower receives everything.
    std::fs::write(&config, "log_bytes_max: 268435456\n")?;
    let mut server = Server::outlast_with(&dir.path().join("data"), &config)?;
    server.ready(Instant::now()).await?;
    let lines = scale.of(LINES);
    let (mut files, mut followed) = (Vec::new(), Vec::new());
    let mut received = 0;
    for _ in 0..ROUNDS {
        files.push(run_job(&server, &format!("seq 1 {lines} > outputs/log"), false).await?.0);
        let (took, bytes) = run_job(&server, &format!("seq 1 {lines}"), true).await?;
        followed.push(took);
        received = bytes;
    }
    let (file, follow) = (median(&mut files), median(&mut followed));
    let note = format!("median of {ROUNDS} alternating rounds; the follower received {:.0} MB", received as f64 / 1e6);
    report.ratio(NAME, "s", follow, ("writing to a file", file), Target::AtMost(1.2), note);
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs a job. Returns the seconds by the job's own clock and the bytes its follower received.
async fn run_job(server: &Server, script: &str, follow: bool) -> anyhow::Result<(f64, u64)> {
    let timed = format!("a=$(date +%s%N); {script}; b=$(date +%s%N); echo $((b-a)) >&2");
    let job = json!({"run": {"process": {"command": ["sh", "-c", timed]}}, "outputs": ["nothing"]});
    let accepted = request_json(server, "POST", "/v1/jobs", job.to_string().as_bytes()).await?;
    let id = accepted["id"].as_str().context("the response has no id")?.to_owned();
    let follower = follow.then(|| {
        let (address, path) = (server.address.to_string(), format!("/v1/jobs/{id}/logs?follow=true"));
        std::thread::spawn(move || read_to_end(&address, &path))
    });
    let ended = request_json(server, "GET", &format!("/v1/jobs/{id}?wait_ms=60000"), b"").await?;
    ensure!(ended["state"] == "succeeded", "the job failed: {ended}");
    let received = match follower {
        Some(follower) => follower.join().map_err(|_| anyhow::anyhow!("the follower panicked"))??,
        None => 0,
    };
    let log = request_text(server, &format!("/v1/jobs/{id}/logs?stream=stderr")).await?;
    let nanos: f64 =
        log.trim().parse().with_context(|| format!("the job's stderr is not a duration in nanoseconds: {log}"))?;
    Ok((nanos / 1e9, received))
}

/// Follows the log as a server-sent event stream and counts the bytes.
fn read_to_end(address: &str, path: &str) -> anyhow::Result<u64> {
    let host = address.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n")?;
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(total),
            read => total += read as u64,
        }
    }
}

async fn request_json(server: &Server, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&request(server, method, path, body).await?)?)
}

async fn request_text(server: &Server, path: &str) -> anyhow::Result<String> {
    request(server, "GET", path, b"").await
}

async fn request(server: &Server, method: &str, path: &str, body: &[u8]) -> anyhow::Result<String> {
    let head = RequestHead::new(method, &server.address, path, &[("Content-Type", "application/json")]);
    let mut bytes = Vec::new();
    head.write(body, &mut bytes);
    let mut connection = Connection::open(&server.address).await?;
    let reply = connection.exchange(&bytes).await?;
    ensure!(reply.status < 300, "{method} {path}: {}", String::from_utf8_lossy(reply.body));
    Ok(String::from_utf8_lossy(reply.body).into_owned())
}
