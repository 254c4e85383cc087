//! Measures the throughput and latency of a policy service:
//! `cargo run --release -p policy_service --example round_trips -- ADDRESS [CALLS] [CONCURRENCY]`.
//!
//! Start one first: `cargo run --release -p policy_service --bin example-policy-service`.

use std::error::Error;
use std::time::{Duration, Instant};

use model::id::JobId;
use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;
use policy_service::{CheckFacts, Client, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: round_trips ADDRESS [CALLS] [CONCURRENCY]")?;
    let calls: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let concurrency: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let client = Client::connect_lazy(Options::new(address))?;
    let facts = CheckFacts::of(JobId(1), &JobSpec::new(Run::Echo(EchoRun::default())), Some("ann"), Millis(0));
    client.check(&facts).await?;
    for concurrency in [1, concurrency] {
        let started = Instant::now();
        let mut times = measure(&client, &facts, calls / if concurrency == 1 { 10 } else { 1 }, concurrency).await?;
        let elapsed = started.elapsed();
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{concurrency} concurrent: {:.0} calls/s, p50 {:?}, p99 {:?}",
            times.len() as f64 / elapsed.as_secs_f64(),
            at(0.5),
            at(0.99)
        );
    }
    Ok(())
}

/// Returns the duration of each call.
async fn measure(
    client: &Client,
    facts: &CheckFacts,
    calls: usize,
    concurrency: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let callers: Vec<_> = (0..concurrency)
        .map(|_| {
            let (client, facts) = (client.clone(), facts.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in 0..calls.div_ceil(concurrency) {
                    let started = Instant::now();
                    client.check(&facts).await?;
                    times.push(started.elapsed());
                }
                Ok::<_, policy_service::Unavailable>(times)
            })
        })
        .collect();
    let mut times = Vec::with_capacity(calls);
    for caller in callers {
        times.extend(caller.await??);
    }
    Ok(times)
}
