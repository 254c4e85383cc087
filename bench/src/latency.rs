//! Latency of one client: from POST with `wait_ms` to the terminal state, compared with the fdatasync of the disk.

use std::time::Instant;

use client::load::{Connection, RequestHead};

use crate::Scale;
use crate::machine::{fdatasync, millis};
use crate::report::{Report, Target};
use crate::server::Server;

const NAME: &str = "one client, POST to terminal state, p50";

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.selects(NAME) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let dir = tempfile::tempdir_in(".")?;
        let mut server = Server::outlast(dir.path())?;
        server.ready(Instant::now()).await?;
        let headers = [("Content-Type", "application/json")];
        let head = RequestHead::new("POST", &server.address, "/v1/jobs?wait_ms=30000", &headers);
        let mut request = Vec::new();
        head.write(br#"{"run":{"echo":{"value":"hello"}}}"#, &mut request);
        let mut connection = Connection::open(&server.address).await?;
        let mut latencies = Vec::new();
        let mut synced = Vec::new();
        // Alternating rounds: disk latency changes over time.
        for _ in 0..5 {
            synced.extend(fdatasync(scale.of(500))?);
            for _ in 0..scale.of(500) {
                let begin = Instant::now();
                let reply = connection.exchange(&request).await?;
                latencies.push(begin.elapsed());
                anyhow::ensure!(reply.status == 201, "status {}", reply.status);
            }
        }
        latencies.sort_unstable();
        synced.sort_unstable();
        let p50 = millis(latencies[latencies.len() / 2]);
        let disk = millis(synced[synced.len() / 2]);
        let note = format!("p99 {:.2} ms; fdatasync p50 {disk:.3} ms", millis(latencies[latencies.len() * 99 / 100]));
        let allowed = ("3 × fdatasync + 0.2 ms", 3.0 * disk + 0.2);
        report.ratio(NAME, "ms", p50, allowed, Target::AtMost(1.0), note);
        Ok(())
    })
}
