//! What watching costs: a job that writes 100 MB with somebody following, against the same job writing to a file.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, ensure};
use client::load::{Connection, RequestHead};
use serde_json::{Value, json};

use crate::Scale;
use crate::report::{Report, Target};
use crate::server::Server;

const NAME: &str = "a job that writes 100 MB, followed";
/// Lines that make up 100 MB.
const LINES: u64 = 12_350_000;
const ROUNDS: u64 = 5;

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.wants(NAME) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(scale, report))
}

async fn run(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let config = dir.path().join("config.yaml");
    // Everything is kept, so that everything has to be followed.
    std::fs::write(&config, "log_bytes_max: 268435456\n")?;
    let mut server = Server::outlast_with(&dir.path().join("data"), &config)?;
    server.ready(Instant::now()).await?;
    let lines = scale.of(LINES);
    let (mut files, mut followed) = (Vec::new(), Vec::new());
    let mut received = 0;
    for _ in 0..ROUNDS {
        files.push(seconds(&server, &format!("seq 1 {lines} > outputs/log"), false).await?.0);
        let (took, bytes) = seconds(&server, &format!("seq 1 {lines}"), true).await?;
        followed.push(took);
        received = bytes;
    }
    let (file, follow) = (median(&mut files), median(&mut followed));
    let note = format!("median of {ROUNDS} in turns; {:.0} MB arrived at the follower", received as f64 / 1e6);
    report.ratio(NAME, "s", follow, ("writing to a file", file), Target::AtMost(1.2), note);
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How long the job took by its own clock, and how much its follower got.
async fn seconds(server: &Server, script: &str, follow: bool) -> anyhow::Result<(f64, u64)> {
    let timed = format!("a=$(date +%s%N); {script}; b=$(date +%s%N); echo $((b-a)) >&2");
    let job = json!({"run": {"process": {"command": ["sh", "-c", timed]}}, "outputs": ["nothing"]});
    let accepted = ask(server, "POST", "/v1/jobs", job.to_string().as_bytes()).await?;
    let id = accepted["id"].as_str().context("an answer without an id")?.to_owned();
    let follower = follow.then(|| {
        let (address, path) = (server.address.to_string(), format!("/v1/jobs/{id}/logs?follow=true"));
        std::thread::spawn(move || read_to_end(&address, &path))
    });
    let ended = ask(server, "GET", &format!("/v1/jobs/{id}?wait_ms=60000"), b"").await?;
    ensure!(ended["state"] == "succeeded", "the job did not succeed: {ended}");
    let received = match follower {
        Some(follower) => follower.join().map_err(|_| anyhow::anyhow!("the follower panicked"))??,
        None => 0,
    };
    let log = get_text(server, &format!("/v1/jobs/{id}/logs?stream=stderr")).await?;
    let nanos: f64 = log.trim().parse().with_context(|| format!("not a time: {log}"))?;
    Ok((nanos / 1e9, received))
}

/// Follows as a client does, with events, and counts.
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

async fn ask(server: &Server, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&exchange(server, method, path, body).await?)?)
}

async fn get_text(server: &Server, path: &str) -> anyhow::Result<String> {
    exchange(server, "GET", path, b"").await
}

async fn exchange(server: &Server, method: &str, path: &str, body: &[u8]) -> anyhow::Result<String> {
    let head = RequestHead::new(method, &server.address, path, &[("Content-Type", "application/json")]);
    let mut request = Vec::new();
    head.write(body, &mut request);
    let mut connection = Connection::open(&server.address).await?;
    let reply = connection.exchange(&request).await?;
    ensure!(reply.status < 300, "{method} {path}: {}", String::from_utf8_lossy(reply.body));
    Ok(String::from_utf8_lossy(reply.body).into_owned())
}
