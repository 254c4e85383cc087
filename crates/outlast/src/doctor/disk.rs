//! Checks of the data directory: write access, free space, sync latency.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::check::Check;
use crate::size;

const FREE_BYTES_MIN: u64 = 1 << 30;
/// Every commit waits for one sync, so this bounds the response time of a single client.
const SYNC_SLOW: Duration = Duration::from_millis(20);
/// Faster than any disk: the file system is in memory.
const SYNC_IMPLAUSIBLE: Duration = Duration::from_micros(5);
const SYNC_ROUNDS: usize = 64;
const SYNC_TIME_MAX: Duration = Duration::from_secs(2);

pub fn check(directory: &Path) -> Vec<Check> {
    let shown = directory.display();
    if !directory.is_dir() {
        let advice = "`outlast up` creates it; --data-dir sets another one";
        return vec![
            Check::skipped("data directory", format!("{shown} does not exist")).advice(advice),
            Check::skipped("free space", "no data directory"),
            Check::skipped("disk sync", "no data directory"),
        ];
    }
    let probe = Probe::new(directory);
    let mut checks = Vec::new();
    match &probe {
        Ok(_) => checks.push(Check::good("data directory", format!("{shown} is writable"))),
        Err(error) => checks.push(
            Check::bad("data directory", format!("{shown} is not writable: {error}"))
                .advice("give the user of the server write access, or set another directory with --data-dir"),
        ),
    }
    checks.push(free_space(directory));
    checks.push(match probe.and_then(|mut probe| probe.sync_latency()) {
        Ok(latency) => rate_sync(latency),
        Err(error) => Check::skipped("disk sync", format!("cannot be measured: {error}")),
    });
    checks
}

fn free_space(directory: &Path) -> Check {
    match rustix::fs::statvfs(directory) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let total = disk.f_blocks.saturating_mul(disk.f_frsize);
            let finding = format!("{} of {}", size::show(free), size::show(total));
            if free < FREE_BYTES_MIN {
                return Check::bad("free space", finding).advice("free disk space: a full disk stops the server");
            }
            Check::good("free space", finding)
        }
        Err(error) => Check::skipped("free space", format!("cannot be read: {error}")),
    }
}

fn rate_sync(latency: Duration) -> Check {
    let finding = format!("p50 {:.3} ms", latency.as_secs_f64() * 1000.0);
    if latency > SYNC_SLOW {
        return Check::bad("disk sync", finding).advice("every submission waits for a sync: use a faster disk");
    }
    if latency < SYNC_IMPLAUSIBLE {
        return Check::skipped("disk sync", finding)
            .advice("too fast for a disk: data in memory is lost when the machine stops");
    }
    Check::good("disk sync", finding)
}

/// Temporary file in the data directory, deleted on drop.
struct Probe {
    path: PathBuf,
    file: File,
}

impl Probe {
    fn new(directory: &Path) -> io::Result<Self> {
        let path = directory.join(format!(".doctor-{}", std::process::id()));
        let file = File::create_new(&path)?;
        Ok(Self { path, file })
    }

    /// Median of several syncs.
    fn sync_latency(&mut self) -> io::Result<Duration> {
        let started = Instant::now();
        let mut latencies = Vec::with_capacity(SYNC_ROUNDS);
        while latencies.len() < SYNC_ROUNDS && (latencies.is_empty() || started.elapsed() < SYNC_TIME_MAX) {
            self.file.write_all(&[0; 4096])?;
            let before = Instant::now();
            self.file.sync_data()?;
            latencies.push(before.elapsed());
        }
        latencies.sort_unstable();
        Ok(latencies[latencies.len() / 2])
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // A file left behind is small and named after this command.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Mark;

    #[test]
    fn a_directory_is_measured_and_left_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let checks = check(directory.path());
        assert_eq!(checks.len(), 3);
        assert_eq!(checks[0].mark, Mark::Good);
        assert!(checks[2].finding.starts_with("p50 "), "{checks:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_directory_is_skipped() {
        let checks = check(Path::new("/does/not/exist"));
        assert!(checks.iter().all(|check| check.mark == Mark::Skipped));
    }

    #[test]
    fn slow_and_implausibly_fast_disks_are_reported() {
        let mark = |micros| rate_sync(Duration::from_micros(micros)).mark;
        assert_eq!([1, 500, 50_000].map(mark), [Mark::Skipped, Mark::Good, Mark::Bad]);
    }
}
