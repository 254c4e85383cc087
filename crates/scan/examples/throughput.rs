//! Throughput of the scanner: `cargo run --release -p scan --example throughput [megabytes]`.
//!
//! Scans log lines with occasional findings, in memory, on one core. A memchr search for an absent byte in the same
//! text gives the upper bound. Then adversarial inputs are scanned.

use std::env;
use std::time::Instant;

use scan::{Limits, Scanner};

const CHUNK_BYTES: usize = 64 << 10;
const RUNS: usize = 15;

fn main() {
    let megabytes: usize = env::args().nth(1).and_then(|argument| argument.parse().ok()).unwrap_or(16);
    let start = Instant::now();
    let scanner = Scanner::new();
    println!("created a scanner of {} patterns in {:?}", scanner.patterns().count(), start.elapsed());

    let text = log(megabytes << 20);
    let found = measure("memchr", &text, |text| memchr::memchr_iter(0, text).count() as u64);
    assert_eq!(found, 0, "log lines have no zero bytes");
    measure("scan", &text, |text| scanner.scan(text).total());
    measure("stream, in chunks", &text, |text| {
        let mut stream = scanner.stream(Limits::default());
        text.chunks(CHUNK_BYTES).for_each(|chunk| stream.feed(chunk));
        stream.finish().total()
    });

    let json = format!("[{}\"\"]", lines(4 << 20).map(|line| format!("{line:?},")).collect::<String>());
    measure("redact_json", json.as_bytes(), |_| {
        scanner.redact_json(&json).map_or(0, |redacted| redacted.counts.values().sum())
    });

    for piece in
        ["a@", "token=", "eyJa.", "-----BEGIN PRIVATE KEY-----", "xoxb-", "4111 ", "sk-", "://a:", "Bearer a ", "+4"]
    {
        let text = piece.repeat((1 << 20) / piece.len());
        measure(&format!("repeated `{piece}`"), text.as_bytes(), |text| scanner.scan(text).total());
    }
}

/// Reports the best of several runs, to exclude the effect of other processes.
fn measure(label: &str, text: &[u8], mut run: impl FnMut(&[u8]) -> u64) -> u64 {
    let (mut seconds, mut found) = (f64::INFINITY, 0);
    for _ in 0..RUNS {
        let start = Instant::now();
        found = run(text);
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    println!("{label}: {:.0} MB/s, {found} findings", text.len() as f64 / 1e6 / seconds);
    found
}

fn log(bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 256);
    for line in lines(bytes) {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    text
}

/// Log lines of about this many bytes in total.
fn lines(bytes: usize) -> impl Iterator<Item = String> {
    let mut made = 0;
    (0_u64..).map(line).take_while(move |line| {
        made += line.len() + 1;
        made <= bytes
    })
}

fn line(number: u64) -> String {
    // Deterministic: the same text in every run.
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (second, micros) = (number / 1_000 % 60, mixed % 1_000_000);
    match mixed >> 32 & 7 {
        0 => format!(
            "2026-01-02T03:04:{second:02}.{micros:06}Z INFO engine::dispatch: job {mixed:016x} started on worker-{}",
            mixed % 97
        ),
        1 => format!(
            "2026-01-02T03:04:{second:02}.{micros:06}Z WARN retry in {} ms, attempt 3 of 5: connection refused (10.0.{}.{}:8443)",
            mixed % 30_000,
            mixed % 250,
            mixed % 249
        ),
        2 => format!(
            "10.1.2.{} - - [02/Jan/2026:03:04:{second:02} +0000] \"GET /v1/jobs/{mixed:x}?limit=100 HTTP/1.1\" 200 {}",
            mixed % 250,
            mixed % 100_000
        ),
        3 => format!(
            "epoch {number} loss={:.16} accuracy={:.4} tokens={} took {} us",
            mixed as f64 / u64::MAX as f64,
            0.93,
            mixed % 9_999_999,
            mixed % 99_999
        ),
        4 => {
            "    at com.example.scheduler.Dispatcher.assign(Dispatcher.java:214) [scheduler-core-4.2.1.jar]".to_string()
        }
        5 => format!(
            "{{\"level\":\"info\",\"message\":\"task finished\",\"task_id\":\"{mixed:032x}\",\"duration_ms\":{}}}",
            mixed % 10_000
        ),
        6 => "Compiling dependencies, this may take a while; the password policy requires a token of the secret store"
            .to_string(),
        _ if number.is_multiple_of(512) => format!("mail sent to user{number}@example.org"),
        _ => format!(
            "step {number}: copied /var/lib/data/part-{:05}.parquet to s3://results/run-{}/",
            mixed % 99_999,
            mixed % 999
        ),
    }
}
