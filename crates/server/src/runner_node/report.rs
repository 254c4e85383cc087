//! What a node reports about itself: capacity, hardware, protections.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use model::envelope::{AttemptUsage, NodeReport, ReportedProtection};
use model::message::{Capacity, Profile};
use model::time::Millis;
use runner::Enforcement;

/// PCI vendors of GPUs, for devices without a driver tool.
const VENDORS: [(&str, &str); 3] = [("0x10de", "NVIDIA"), ("0x1002", "AMD"), ("0x8086", "Intel")];

/// The parts of a report that do not change while the node runs.
#[derive(Debug, Clone)]
pub(crate) struct Hardware {
    cores: u32,
    memory_bytes: u64,
    gpus: BTreeMap<String, u32>,
}

impl Hardware {
    /// Looks at the machine. Runs `nvidia-smi` if there is one, so it blocks.
    pub fn detect() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let memory_bytes = runner::pressure::total_memory().unwrap_or(0);
        Self { cores, memory_bytes, gpus: gpus() }
    }

    /// The current report of a node.
    pub fn report(
        &self,
        name: &str,
        data_dir: &Path,
        slots: Capacity,
        profile: Profile,
        runner: &runner::Handle,
    ) -> NodeReport {
        let (disk_bytes, disk_available_bytes) = disk(data_dir);
        NodeReport {
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capacity: slots,
            profile,
            cores: self.cores,
            memory_bytes: self.memory_bytes,
            memory_available_bytes: runner::pressure::available_memory(),
            disk_bytes,
            disk_available_bytes,
            gpus: self.gpus.clone(),
            protections: protections(runner),
            refuses_work: runner.refuses_work(),
        }
    }
}

/// The protections of attempts on a runner's node.
fn protections(runner: &runner::Handle) -> Vec<ReportedProtection> {
    let entries = runner.protections().entries.into_iter();
    let reported = entries.map(|(name, enforcement)| match enforcement {
        Enforcement::Active { mechanism } => ReportedProtection { name, in_force: true, how: mechanism },
        Enforcement::Missing { reason } => ReportedProtection { name, in_force: false, how: reason },
    });
    reported.collect()
}

/// Current usage of all running processes.
pub(super) fn usage(runner: &runner::Handle) -> Vec<AttemptUsage> {
    let samples = runner.sampling().all().into_iter();
    let usage = samples.map(|(attempt_ref, usage)| AttemptUsage {
        attempt_ref,
        cpu: Millis(u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX)),
        cpu_per_mille: usage.cpu_percent.map(|percent| (percent * 10.0) as u32),
        memory_bytes: usage.memory_bytes,
    });
    usage.collect()
}

/// Total and available bytes of the file system.
fn disk(path: &Path) -> (u64, u64) {
    match rustix::fs::statvfs(path) {
        Ok(found) => (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize),
        Err(_) => (0, 0),
    }
}

/// GPUs by model: as `nvidia-smi` names them, else by the vendor of the DRM devices.
fn gpus() -> BTreeMap<String, u32> {
    let named = nvidia_gpus();
    if !named.is_empty() {
        return named;
    }
    let mut found = BTreeMap::new();
    for device in std::fs::read_dir("/sys/class/drm").into_iter().flatten().flatten() {
        let name = device.file_name();
        // Devices for computing. Cards have outputs too, and virtual ones have no renderer.
        if !name.to_string_lossy().starts_with("renderD") {
            continue;
        }
        let vendor = std::fs::read_to_string(device.path().join("device/vendor")).unwrap_or_default();
        if let Some((_, name)) = VENDORS.iter().find(|(id, _)| *id == vendor.trim()) {
            *found.entry(format!("{name} GPU")).or_default() += 1;
        }
    }
    found
}

fn nvidia_gpus() -> BTreeMap<String, u32> {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name", "--format=csv,noheader"]).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(output) = command.output() else { return BTreeMap::new() };
    match output.status.success() {
        true => count_lines(&String::from_utf8_lossy(&output.stdout)),
        false => BTreeMap::new(),
    }
}

fn count_lines(text: &str) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_counted_by_model() {
        let counted = count_lines("NVIDIA A100\nNVIDIA A100\n\n NVIDIA L4\n");
        assert_eq!(counted, [("NVIDIA A100".to_owned(), 2), ("NVIDIA L4".to_owned(), 1)].into());
    }

    #[test]
    fn the_disk_of_the_data_directory_is_measured() {
        let (all, available) = disk(&std::env::temp_dir());
        assert!(all > 0 && available <= all);
    }
}
