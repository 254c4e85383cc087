//! A large input: from the control node to a runner node, compared with `curl` over TLS.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use model::state::State;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::fixture::Cluster;
use crate::Scale;
use crate::report::{Report, Target};
use crate::tls::Certificates;

pub const NAME: &str = "1 GB input to a runner node";

const ROUNDS: u64 = 3;
const BUFFER_BYTES: usize = 256 << 10;

pub async fn measure(cluster: &Cluster, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let bytes = scale.of(1_000_000_000);
    let file = cluster.directory().join("input");
    let (mut own, mut curl) = (Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS {
        // Other bytes each time: nodes keep what they have received.
        write_noise(&file, bytes, round)?;
        let blob = cluster.client().put_blob(file.as_path()).await?.id;
        // What was written so far does not slow down what is measured.
        rustix::fs::sync();
        let check = format!("test $(stat -L -c %s inputs/data) = {bytes}");
        let job =
            format!(r#"{{"run":{{"process":{{"command":["sh","-c","{check}"]}}}},"inputs":{{"data":"{blob}"}}}}"#);
        let begin = Instant::now();
        let job = cluster.submit(&job).await?;
        let ended = cluster.when(job, |job| job.state.is_terminal()).await?;
        own += begin.elapsed();
        anyhow::ensure!(ended.state == State::Succeeded, "the job with the input has failed: {ended:?}");
        rustix::fs::sync();
        curl += download(&file, &cluster.directory().join("downloaded"))?;
    }
    let rate = |time: Duration| (ROUNDS * bytes) as f64 / 1e6 / time.as_secs_f64();
    let note = format!("{bytes} bytes, {ROUNDS} times, submit to end of a job, stored and verified");
    report.ratio(NAME, "MB/s", rate(own), ("curl over TLS", rate(curl)), Target::AtLeast(0.6), note);
    Ok(())
}

/// Bytes that are not repeated, by xorshift.
fn write_noise(path: &Path, bytes: u64, seed: u64) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    let (mut state, mut left) = (0x9e37_79b9_7f4a_7c15 ^ (seed + 1), bytes);
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    while left > 0 {
        buffer.clear();
        while buffer.len() < BUFFER_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            buffer.extend_from_slice(&state.to_le_bytes());
        }
        let part = left.min(BUFFER_BYTES as u64);
        file.write_all(&buffer[..part as usize])?;
        left -= part;
    }
    Ok(())
}

/// Time of `curl` for a file from a server that does nothing but TLS.
fn download(from: &Path, to: &Path) -> anyhow::Result<Duration> {
    let config = Arc::new(Certificates::new()?.server_config()?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("https://{}/", listener.local_addr()?);
    let file = File::open(from)?;
    let server = std::thread::spawn(move || serve(&listener, config, file));
    let begin = Instant::now();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--insecure", "--http1.1", "--output"]).arg(to).arg(url);
    let status = curl.status().context("cannot start curl")?;
    let spent = begin.elapsed();
    anyhow::ensure!(status.success(), "curl has failed: {status}");
    server.join().map_err(|_| anyhow::anyhow!("the TLS server panicked"))??;
    let copied = to.metadata()?.len();
    std::fs::remove_file(to)?;
    anyhow::ensure!(copied == from.metadata()?.len(), "curl has stored {copied} bytes");
    Ok(spent)
}

/// Answers one request with a file.
fn serve(listener: &TcpListener, config: Arc<ServerConfig>, mut file: File) -> anyhow::Result<()> {
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut stream = StreamOwned::new(ServerConnection::new(config)?, stream);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", file.metadata()?.len())?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => stream.write_all(&buffer[..read])?,
        }
    }
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(())
}
