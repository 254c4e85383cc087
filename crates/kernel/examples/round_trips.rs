//! How fast a kernel answers: `cargo run --release -p kernel --example round_trips -- ADDRESS [CALLS] [AT_ONCE]`.
//!
//! Start one first: `cargo run --release -p kernel --bin example-kernel`.

use std::error::Error;
use std::time::{Duration, Instant};

use kernel::{CheckFacts, Client, Options};
use model::id::JobId;
use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("say where the kernel is")?;
    let calls: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let at_once: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let client = Client::connect_lazy(Options::new(address))?;
    let facts = CheckFacts::of(JobId(1), &JobSpec::new(Run::Echo(EchoRun::default())), Some("ann"), Millis(0));
    client.check(&facts).await?;
    for at_once in [1, at_once] {
        let started = Instant::now();
        let mut times = ask(&client, &facts, calls / if at_once == 1 { 10 } else { 1 }, at_once).await?;
        let elapsed = started.elapsed();
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{at_once} at once: {:.0} calls/s, p50 {:?}, p99 {:?}",
            times.len() as f64 / elapsed.as_secs_f64(),
            at(0.5),
            at(0.99)
        );
    }
    Ok(())
}

/// How long each call took.
async fn ask(
    client: &Client,
    facts: &CheckFacts,
    calls: usize,
    at_once: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let askers: Vec<_> = (0..at_once)
        .map(|_| {
            let (client, facts) = (client.clone(), facts.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in 0..calls.div_ceil(at_once) {
                    let started = Instant::now();
                    client.check(&facts).await?;
                    times.push(started.elapsed());
                }
                Ok::<_, kernel::Unavailable>(times)
            })
        })
        .collect();
    let mut times = Vec::with_capacity(calls);
    for asker in askers {
        times.extend(asker.await??);
    }
    Ok(times)
}
