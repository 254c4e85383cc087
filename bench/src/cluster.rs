//! A control node with five runner nodes: how soon work of a dead, hung or cut-off node runs elsewhere, whether a busy one is
//! taken for dead, and what the network costs.

mod busy;
mod fixture;
mod input;

use std::time::{Duration, Instant};

use anyhow::Context;
use hosts::Loss;
use model::id::NodeId;
use model::state::State;
use rustix::process::Signal;

use crate::Scale;
use crate::http::{Batches, send};
use crate::report::{Report, Target};
use crate::sandboxes::batch;
use fixture::Cluster;

const DEATH: &str = "kill -9 of a node to its job running elsewhere";
const HANG: &str = "SIGSTOP of a node to its job running elsewhere";
const CUT: &str = "cut link of a node to its job running elsewhere";
const CONTROL: &str = "kill -9 of the control node to accepting jobs";
const ECHO: &str = "echo jobs through a runner node";
const PROCESSES: &str = "sandboxed /bin/true on a runner node";

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if [DEATH, HANG, CONTROL, ECHO, PROCESSES, busy::NAME, input::NAME].iter().any(|name| report.selects(name)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(measure_on_loopback(scale, report))?;
    }
    if report.selects(CUT) {
        let rounds = scale.of(20).max(2);
        // The thread moves to the network namespace of the control node.
        let measured = std::thread::spawn(move || -> anyhow::Result<Duration> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut cluster = Cluster::start_apart().await?;
                cluster.control_takes_work(false).await?;
                failures(&mut cluster, rounds, Fault::Cut).await
            })
        });
        let slowest = measured.join().map_err(|_| anyhow::anyhow!("the measurement panicked"))??;
        let note = format!("5 nodes on hosts of their own, all packets dropped silently, slowest of {rounds}");
        report.absolute(CUT, "s", slowest.as_secs_f64(), Target::AtMost(4.0), note);
    }
    Ok(())
}

async fn measure_on_loopback(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let mut cluster = Cluster::start().await?;
    if report.selects(ECHO) || report.selects(PROCESSES) {
        throughput(&cluster, scale, report).await?;
    }
    cluster.control_takes_work(false).await?;
    if report.selects(input::NAME) {
        input::measure(&cluster, scale, report).await?;
    }
    let rounds = scale.of(20).max(2);
    if report.selects(DEATH) {
        let slowest = failures(&mut cluster, rounds, Fault::Kill).await?;
        let note = format!("5 nodes, server and spawner killed, slowest of {rounds}");
        report.absolute(DEATH, "s", slowest.as_secs_f64(), Target::AtMost(1.0), note);
    }
    if report.selects(HANG) {
        let slowest = failures(&mut cluster, rounds, Fault::Stop).await?;
        let note = format!("5 nodes, server and spawner stopped, slowest of {rounds}");
        report.absolute(HANG, "s", slowest.as_secs_f64(), Target::AtMost(4.0), note);
    }
    if report.selects(busy::NAME) {
        busy::measure(&cluster, scale, report).await?;
    }
    if report.selects(CONTROL) {
        restart_control(cluster, scale, report).await?;
    }
    Ok(())
}

/// What happens to a runner node.
#[derive(Clone, Copy)]
enum Fault {
    Kill,
    Stop,
    /// Its link drops everything in both directions.
    Cut,
}

/// The slowest time from a fault of a node until its job runs elsewhere.
async fn failures(cluster: &mut Cluster, rounds: u64, fault: Fault) -> anyhow::Result<Duration> {
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        slowest = slowest.max(failure(cluster, fault).await?);
    }
    Ok(slowest)
}

async fn failure(cluster: &mut Cluster, fault: Fault) -> anyhow::Result<Duration> {
    let job = cluster.submit(r#"{"run":{"process":{"command":["sleep","3600"]}}}"#).await?;
    let running = cluster.when(job, |job| job.state == State::Running).await?;
    let runner = running.runner.context("a running job has a runner")?;
    let index = cluster.runner_of(&runner)?;
    let begin = Instant::now();
    match fault {
        Fault::Kill => cluster.runner(index).signal(Signal::KILL)?,
        Fault::Stop => cluster.runner(index).signal(Signal::STOP)?,
        Fault::Cut => cluster.runner(index).host()?.lose(Loss::ALL),
    }
    cluster.when(job, |job| job.state == State::Running && job.attempt.0 == 2).await?;
    let spent = begin.elapsed();
    cluster.client().cancel(job).await?;
    match fault {
        Fault::Kill => {
            cluster.runner(index).kill()?;
            cluster.start_runner(index)?;
        }
        Fault::Stop => cluster.runner(index).signal(Signal::CONT)?,
        Fault::Cut => cluster.runner(index).host()?.heal(),
    }
    cluster.when(job, |job| job.state.is_terminal()).await?;
    cluster.wait_for_nodes().await?;
    Ok(spent)
}

/// The same jobs in this process and through one runner node.
async fn throughput(cluster: &Cluster, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let nodes = cluster.client().nodes().await?.items;
    let others: Vec<NodeId> = nodes.iter().filter(|node| node.role == "runner").map(|node| node.id).collect();
    for node in &others {
        cluster.take_work(*node, false).await?;
    }
    let (echo_jobs, process_jobs) = (scale.of(1_000_000), scale.of(6_000));
    let own = (echo(cluster, echo_jobs).await?, processes(cluster, process_jobs).await?);
    cluster.control_takes_work(false).await?;
    cluster.take_work(others[0], true).await?;
    let through = (echo(cluster, echo_jobs).await?, processes(cluster, process_jobs).await?);
    for node in &others[1..] {
        cluster.take_work(*node, true).await?;
    }
    let note = format!("{echo_jobs} jobs in batches of 500");
    report.ratio(ECHO, "jobs/s", through.0, ("in this process", own.0), Target::AtLeast(0.5), note);
    let note = format!("{process_jobs} jobs in batches");
    report.ratio(PROCESSES, "jobs/s", through.1, ("in this process", own.1), Target::AtLeast(0.8), note);
    Ok(())
}

async fn echo(cluster: &Cluster, jobs: u64) -> anyhow::Result<f64> {
    let begin = Instant::now();
    send(cluster.server(), Batches::new(cluster.server(), 500, false, 0), jobs / 500, 8).await?;
    cluster.server().drained().await?;
    Ok(jobs as f64 / begin.elapsed().as_secs_f64())
}

async fn processes(cluster: &Cluster, jobs: u64) -> anyhow::Result<f64> {
    let job = r#"{"run":{"process":{"command":["/bin/true"]}}}"#;
    let begin = Instant::now();
    send(cluster.server(), batch(cluster.server(), job, 500.min(jobs)), (jobs / 500).max(1), 2).await?;
    cluster.server().drained().await?;
    Ok(jobs as f64 / begin.elapsed().as_secs_f64())
}

async fn restart_control(mut cluster: Cluster, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let live = scale.of(100_000);
    let batches = Batches::new(cluster.server(), 500, false, 3_600_000);
    send(cluster.server(), batches, live / 500, 8).await?;
    let begin = Instant::now();
    cluster.kill_control().await?;
    cluster.submit(r#"{"run":{"echo":{"value":1}}}"#).await?;
    let accepted = begin.elapsed();
    cluster.wait_for_nodes().await?;
    let note =
        format!("{live} live jobs, 5 runner nodes, all connected again after {:.2} s", begin.elapsed().as_secs_f64());
    report.absolute(CONTROL, "s", accepted.as_secs_f64(), Target::AtMost(3.0), note);
    Ok(())
}
