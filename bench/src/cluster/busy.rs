//! Nodes that are busy and not dead.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use model::id::JobId;
use model::state::State;

use super::fixture::{Cluster, NODES};
use crate::Scale;
use crate::report::{Report, Target};

pub const NAME: &str = "false deaths of busy nodes";

const REPORT_TIMEOUT: Duration = Duration::from_secs(60);
const SPIN: &str = r#"{"run":{"process":{"command":["sh","-c","while :; do :; done"]}}}"#;

/// Fills all slots of all nodes with programs that use a core each, and counts the nodes that were taken for dead.
pub async fn measure(cluster: &Cluster, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let slots = slots(cluster).await?;
    let before = lost(cluster).await?;
    let mut jobs: Vec<JobId> = Vec::new();
    for _ in 0..slots {
        jobs.push(cluster.submit(SPIN).await?);
    }
    for job in &jobs {
        cluster.when(*job, |job| job.state == State::Running).await?;
    }
    let (begin, ticks, duration) = (Instant::now(), cpu_ticks()?, scale.busy());
    while begin.elapsed() < duration {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (minutes, idle) = (begin.elapsed().as_secs_f64() / 60.0, idle_percent(ticks, cpu_ticks()?));
    let mut again = 0;
    for job in &jobs {
        let job = cluster.client().job(*job).await?;
        again += u32::from(job.state != State::Running || job.attempt.0 != 1);
    }
    let deaths = lost(cluster).await? - before;
    for job in &jobs {
        cluster.client().cancel(*job).await?;
    }
    cluster.server().drained().await?;
    let note = format!(
        "{minutes:.1} minutes, {NODES} nodes on one machine with {slots} spinning programs, {idle:.1} % idle, \
         {again} attempts ended"
    );
    report.absolute(NAME, "deaths", f64::from(deaths.max(again)), Target::AtMost(0.0), note);
    Ok(())
}

/// Slots of all runner nodes, once they have reported them.
async fn slots(cluster: &Cluster) -> anyhow::Result<u32> {
    let begin = Instant::now();
    loop {
        let nodes = cluster.client().nodes().await?.items;
        let slots = nodes.iter().filter(|node| node.role == "runner").map(|node| node.capacity.process);
        let slots: Vec<u32> = slots.collect();
        if slots.len() == NODES && slots.iter().all(|slots| *slots > 0) {
            return Ok(slots.iter().sum());
        }
        anyhow::ensure!(begin.elapsed() < REPORT_TIMEOUT, "not all runner nodes have reported slots: {slots:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How often runner nodes were lost, as their timelines say.
async fn lost(cluster: &Cluster) -> anyhow::Result<u32> {
    let mut lost = 0;
    for node in cluster.client().nodes().await?.items {
        let timeline = cluster.client().node(node.id).await?.timeline;
        lost += timeline.iter().filter(|entry| entry.event == "lost").count() as u32;
    }
    Ok(lost)
}

/// Idle ticks and all ticks of the machine.
fn cpu_ticks() -> anyhow::Result<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|number| number.parse().ok()).collect();
    let idle = ticks.get(3).context("/proc/stat has no idle time")?;
    Ok((*idle, ticks.iter().take(8).sum()))
}

fn idle_percent(before: (u64, u64), after: (u64, u64)) -> f64 {
    100.0 * (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64
}
