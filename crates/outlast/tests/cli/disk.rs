//! A full disk: a clear error, and no accepted job is lost.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::{Server, run_alone};

/// A small file system, unmounted on drop.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    /// `None` without the right to mount; the skip is logged to `OUTLAST_SKIP_LOG`.
    fn new(mebibytes: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        if mount(&["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"], directory.path()) {
            return Some(Self { directory });
        }
        let why = "skipped: a small disk cannot be mounted here (requires root and the right to mount)";
        eprintln!("{why}");
        if let Some(log) = std::env::var_os("OUTLAST_SKIP_LOG") {
            let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
            writeln!(log, "{why}").unwrap();
        }
        None
    }

    fn grow(&self, mebibytes: u32) {
        assert!(mount(&["-o", &format!("remount,size={mebibytes}m")], self.directory.path()));
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.directory.path()).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    Command::new("mount").args(arguments).arg(at).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_full_disk_is_reported_at_the_start() {
    let Some(disk) = SmallDisk::new(2) else { return };
    let data = disk.data().display().to_string();
    let ran = run_alone(["up", "--listen", "127.0.0.1:0", "--data-dir", &data]).expect(1);
    assert!(ran.stderr.contains("no space left") && ran.stderr.contains("free some space"), "{}", ran.stderr);
}

#[test]
fn a_disk_that_fills_up_loses_no_accepted_job() {
    let Some(disk) = SmallDisk::new(24) else { return };
    let mut server = Server::start_at(&disk.data());
    let line = format!("{{\"run\":{{\"echo\":{{\"value\":\"{}\"}}}}}}\n", "x".repeat(2000));
    let mut accepted = 0;
    // Each round fills a part of a segment; the disk has room for few.
    for _ in 0..50 {
        let ran = server.run_with_input(&["submit", "--file", "-"], &line.repeat(200));
        accepted += ran.stdout.lines().filter(|line| line.starts_with("job_")).count();
        if ran.code != Some(0) {
            break;
        }
    }
    assert!(accepted > 0);
    let log = server.wait_for_end();
    assert!(log.contains("no space left"), "{log}");
    disk.grow(500);
    server.start_again();
    let found = server.run(["jobs", "--all", "--output", "json"]).expect(0).json();
    assert!(found["items"].as_array().unwrap().len() >= accepted, "accepted {accepted}");
}
