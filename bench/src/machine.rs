//! Description of the machine during this run.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    cores: usize,
    cpu: String,
    kernel: String,
    load_average: String,
    /// 4 KiB overwrite and fdatasync.
    fdatasync_p50_ms: f64,
    fdatasync_p99_ms: f64,
}

pub fn read() -> anyhow::Result<Machine> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let latencies = fdatasync(500)?;
    Ok(Machine {
        cores: std::thread::available_parallelism()?.get(),
        cpu: cpu.trim_start_matches(['\t', ' ', ':']).to_owned(),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        load_average: fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned(),
        fdatasync_p50_ms: millis(latencies[latencies.len() / 2]),
        fdatasync_p99_ms: millis(latencies[latencies.len() * 99 / 100]),
    })
}

pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Sorted latencies of overwriting 4 KiB of a preallocated file and syncing it.
pub fn fdatasync(rounds: u64) -> anyhow::Result<Vec<Duration>> {
    let dir = tempfile::tempdir_in(".")?;
    let file = OpenOptions::new().write(true).create_new(true).open(dir.path().join("sync"))?;
    file.write_all_at(&vec![0; 4096 * rounds as usize], 0)?;
    file.sync_all()?;
    let page = [7u8; 4096];
    let mut latencies = Vec::new();
    for round in 0..rounds {
        let begin = Instant::now();
        file.write_all_at(&page, round * 4096)?;
        file.sync_data()?;
        latencies.push(begin.elapsed());
    }
    latencies.sort_unstable();
    Ok(latencies)
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cores, {}, Linux {}, load {}, fdatasync p50 {:.3} ms p99 {:.3} ms",
            self.cores, self.cpu, self.kernel, self.load_average, self.fdatasync_p50_ms, self.fdatasync_p99_ms
        )
    }
}
