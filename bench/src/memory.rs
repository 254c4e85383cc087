//! Memory of an idle server and of a waiting job.

use std::time::{Duration, Instant};

use crate::Scale;
use crate::http::{Batches, send};
use crate::report::{Report, Target};
use crate::server::Server;

const IDLE: &str = "memory of an idle server";
const JOB: &str = "memory of a live echo job";
const AN_HOUR_MS: u64 = 3_600_000;

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.selects(IDLE) && !report.selects(JOB) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let dir = tempfile::tempdir_in(".")?;
        let mut server = Server::outlast(dir.path())?;
        server.ready(Instant::now()).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let idle = server.memory()?;
        let note = format!("{:.1} MB anonymous, the rest pages of the binary", server.anonymous_memory()? as f64 / 1e6);
        report.absolute(IDLE, "MB", idle as f64 / 1e6, Target::AtMost(60.0), note);
        let jobs = scale.of(500_000);
        send(&server, Batches::new(&server, 500, false, AN_HOUR_MS), jobs / 500, 8).await?;
        // The overlay holds a second copy of the jobs until they are written to the tables.
        tokio::time::sleep(Duration::from_secs(15)).await;
        let each = (server.memory()? - idle) as f64 / jobs as f64;
        let note = format!("{jobs} jobs with a value of 100 bytes each");
        report.absolute(JOB, "bytes", each, Target::AtMost(1_200.0), note);
        Ok(())
    })
}
