//! Pressure on memory and disk: a node stops accepting work before the kernel's OOM killer acts or writes fail.

use std::fs;
use std::path::Path;

/// Pressure on memory or disk, with hysteresis.
#[derive(Debug, Clone, Copy)]
pub struct Pressure {
    /// With less available memory or room, nothing new is started.
    pub reserve_bytes: u64,
    high: bool,
}

impl Pressure {
    pub fn new(reserve_bytes: u64) -> Self {
        Self { reserve_bytes, high: false }
    }

    /// Whether too little is available. Once high, pressure falls only at one and a half times the reserve, so
    /// that it does not oscillate.
    pub fn is_high(&mut self, available: Option<u64>) -> bool {
        let Some(available) = available else { return false };
        let limit = if self.high { self.reserve_bytes + self.reserve_bytes / 2 } else { self.reserve_bytes };
        self.high = available < limit;
        self.high
    }
}

/// Memory available to new programs.
pub fn available_memory() -> Option<u64> {
    read("/proc/meminfo", "MemAvailable:")
}

/// Room on the file system of a directory for an ordinary user.
pub fn available_disk(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

/// Total memory of the machine.
pub fn total_memory() -> Option<u64> {
    read("/proc/meminfo", "MemTotal:")
}

fn read(file: &str, name: &str) -> Option<u64> {
    parse(&fs::read_to_string(file).ok()?, name)
}

fn parse(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_at_the_reserve_and_falls_well_above_it() {
        let mut pressure = Pressure::new(100);
        assert!(!pressure.is_high(Some(100)));
        assert!(pressure.is_high(Some(99)));
        assert!(pressure.is_high(Some(149)));
        assert!(!pressure.is_high(Some(150)));
        assert!(!pressure.is_high(None));
    }

    #[test]
    fn memory_is_read_from_the_kernel() {
        assert_eq!(parse("MemTotal:       24564828 kB\nMemAvailable:    5 kB\n", "MemAvailable:"), Some(5 * 1024));
        assert_eq!(parse("nonsense", "MemTotal:"), None);
        assert!(total_memory() >= available_memory());
    }
}
