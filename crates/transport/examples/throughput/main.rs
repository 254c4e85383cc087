//! Measures links and transfers on the loopback interface, next to an echo of bare tonic with the same TLS:
//! `cargo run --release -p transport --example throughput`.

mod bare;
mod node;

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ENVELOPE_BYTES: usize = 128;
const OBJECT_BYTES: usize = 1 << 30;

#[tokio::main]
async fn main() -> Result<()> {
    let mut link = node::Node::start().await?;
    let mut bare = bare::Bare::start().await?;
    for (in_flight, count) in [(1, 20_000), (64, 500_000)] {
        for round in 0..2 {
            let times = link.echo(in_flight, count / if round == 0 { 10 } else { 1 }).await?;
            if round == 1 {
                report("link", in_flight, times);
            }
            let times = bare.echo(in_flight, count / if round == 0 { 10 } else { 1 }).await?;
            if round == 1 {
                report("bare tonic stream", in_flight, times);
            }
        }
    }
    for _ in 0..3 {
        let started = Instant::now();
        let mut content = link.object().await?;
        let mut bytes = 0;
        while let Some(part) = content.next().await {
            bytes += part?.len();
        }
        let elapsed = started.elapsed();
        println!("GetObject: {bytes} bytes in {elapsed:.2?}, {:.0} MB/s", bytes as f64 / 1e6 / elapsed.as_secs_f64());
    }
    Ok(())
}

/// Durations of round trips, and of all together.
struct Times {
    each: Vec<Duration>,
    all: Duration,
}

fn report(name: &str, in_flight: usize, mut times: Times) {
    times.each.sort();
    let at = |share: f64| times.each[((times.each.len() - 1) as f64 * share) as usize];
    let per_sec = times.each.len() as f64 / times.all.as_secs_f64();
    println!("{name}, {in_flight} in flight: {per_sec:.0}/s, p50 {:.1?}, p99 {:.1?}", at(0.5), at(0.99));
}

fn envelope() -> Bytes {
    Bytes::from(vec![7; ENVELOPE_BYTES])
}
