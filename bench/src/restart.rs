//! Time of a restart: with a large history, and after kill -9 under load.

use std::time::{Duration, Instant};

use crate::Scale;
use crate::http::{Batches, send};
use crate::report::{Report, Target};
use crate::server::Server;

const START: &str = "start, 1,000,000 terminal and 100,000 live jobs";
const FIRST: &str = "kill -9 to the first pending job running";
const ALL: &str = "kill -9 to 10,000 pending jobs ended";
/// Longer than the measurement: these jobs stay live.
const AN_HOUR_MS: u64 = 3_600_000;

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if report.selects(START) {
        runtime.block_on(with_history(scale, report))?;
    }
    if report.selects(FIRST) || report.selects(ALL) {
        runtime.block_on(after_kill(scale, report))?;
    }
    Ok(())
}

async fn with_history(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    send(&server, Batches::new(&server, 500, false, 0), scale.of(1_000_000) / 500, 8).await?;
    server.drained().await?;
    send(&server, Batches::new(&server, 500, false, AN_HOUR_MS), scale.of(100_000) / 500, 8).await?;
    server.kill()?;
    let begin = Instant::now();
    let mut server = Server::outlast(dir.path())?;
    let after_kill = server.ready(begin).await?;
    anyhow::ensure!(
        server.metric("outlast_jobs_live").await? == scale.of(100_000),
        "the number of live jobs changed across the restart"
    );
    server.stop()?;
    let begin = Instant::now();
    let mut server = Server::outlast(dir.path())?;
    let after_stop = server.ready(begin).await?;
    let note = format!("after kill -9; {:.2} s after a clean stop", after_stop.as_secs_f64());
    report.absolute(START, "s", after_kill.as_secs_f64(), Target::AtMost(2.0), note);
    Ok(())
}

async fn after_kill(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    send(&server, Batches::new(&server, 500, false, 0), scale.of(100_000) / 500, 8).await?;
    server.drained().await?;
    // A delay of 300 ms: still pending at the kill, and due when the server is back.
    let pending = scale.of(10_000);
    send(&server, Batches::new(&server, 500, false, 300), pending / 500, 8).await?;
    let live = server.metric("outlast_jobs_live").await?;
    server.kill()?;
    let begin = Instant::now();
    let mut server = Server::outlast(dir.path())?;
    server.ready(begin).await?;
    let mut first = None;
    loop {
        if first.is_none() && server.metric("outlast_attempts_total").await? > 0 {
            first = Some(begin.elapsed());
        }
        if server.metric("outlast_jobs_live").await? == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let all = begin.elapsed();
    let note = format!("{live} of {pending} jobs were live at the kill; each has a delay of 0.3 s");
    let first = first.unwrap_or(all).as_secs_f64();
    report.absolute(FIRST, "s", first, Target::AtMost(0.5), note.clone());
    report.absolute(ALL, "s", all.as_secs_f64(), Target::AtMost(2.0), note);
    Ok(())
}
