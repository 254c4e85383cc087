//! A task from a control node to a runner node and back over the production transport, compared with an echo of bare tonic
//! with the same TLS. Neither side stores anything or runs a program: this is the cost of the network.

mod bare;
mod control;
mod runner;

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::Scale;
use crate::report::{Report, Target};
use crate::tls::Certificates;

const ONE: &str = "task round trip between nodes, one at a time";
const MANY: &str = "task round trips between nodes, 64 in flight";

const IN_FLIGHT: usize = 64;
const ROUNDS: u64 = 5;

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.selects(ONE) && !report.selects(MANY) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut tasks = control::Control::start().await?;
        let mut bare = bare::Bare::start(control::dispatch_bytes()).await?;
        if report.selects(ONE) {
            let (mut own, mut reference) = (Vec::new(), Vec::new());
            // Alternating rounds: the machine is shared.
            for round in 0..=ROUNDS {
                let count = scale.of(4_000);
                let (one, other) = (tasks.run(1, count).await?, bare.echo(1, count).await?);
                // The first round warms up.
                if round > 0 {
                    own.extend(one.each);
                    reference.extend(other.each);
                }
            }
            let (p50, p99) = percentiles(&mut own);
            let (reference, _) = percentiles(&mut reference);
            let note = format!("p50; p99 {p99:.1} µs");
            report.ratio(ONE, "µs", p50, ("bare tonic echo", reference), Target::AtMost(3.0), note);
        }
        if report.selects(MANY) {
            let (mut own, mut reference, mut tasks_done) = (Duration::ZERO, Duration::ZERO, 0);
            for round in 0..=ROUNDS {
                let count = scale.of(100_000);
                let (one, other) = (tasks.run(IN_FLIGHT, count).await?, bare.echo(IN_FLIGHT, count).await?);
                if round > 0 {
                    (own, reference, tasks_done) = (own + one.all, reference + other.all, tasks_done + count);
                }
            }
            let rate = |time: Duration| tasks_done as f64 / time.as_secs_f64();
            let note = format!("{tasks_done} tasks");
            report.ratio(MANY, "/s", rate(own), ("bare tonic echo", rate(reference)), Target::AtLeast(0.4), note);
        }
        Ok(())
    })
}

/// Times of round trips, and of all together.
struct Times {
    each: Vec<Duration>,
    all: Duration,
}

/// p50 and p99 in microseconds.
fn percentiles(times: &mut [Duration]) -> (f64, f64) {
    times.sort_unstable();
    (1e6 * times[times.len() / 2].as_secs_f64(), 1e6 * times[times.len() * 99 / 100].as_secs_f64())
}

/// Runs the other side on a thread of its own, as another process would. Returns what it reports first.
async fn on_thread<T, F>(side: impl FnOnce(oneshot::Sender<T>) -> F + Send + 'static) -> anyhow::Result<T>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<()>>,
{
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(side(sender));
        if let Err(error) = &result {
            eprintln!("the other side has failed: {error:#}");
        }
        result
    });
    Ok(receiver.await?)
}

/// A clock for both ends of a link.
struct Clock(Instant);

impl Clock {
    fn now(&self) -> model::time::Millis {
        model::time::Millis(1 + self.0.elapsed().as_millis() as u64)
    }
}
