//! CPU and GPU load of the machine, from /proc and /sys.

use std::fs;

use model::message::Load;

/// GPU load, for drivers that report it.
const GPU_BUSY: &str = "/sys/class/drm/card0/device/gpu_busy_percent";

/// CPU time since boot, in kernel ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ticks {
    busy: u64,
    all: u64,
}

/// Computes the load between two measurements.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    before: Option<Ticks>,
}

impl LoadMeter {
    /// Load since the last measurement; CPU load is 0 at the first.
    pub fn measure(&mut self) -> Load {
        let now = fs::read_to_string("/proc/stat").ok().and_then(|text| parse(&text));
        let before = std::mem::replace(&mut self.before, now);
        let cpu_percent = match (before, now) {
            (Some(before), Some(now)) => percent(before, now),
            (None, _) | (_, None) => 0,
        };
        let gpu = fs::read_to_string(GPU_BUSY).ok().and_then(|text| text.trim().parse::<u8>().ok());
        Load { cpu_percent, gpu_percent: gpu.unwrap_or(0).min(100) }
    }
}

fn percent(before: Ticks, now: Ticks) -> u8 {
    let all = now.all.saturating_sub(before.all);
    let busy = now.busy.saturating_sub(before.busy).min(all);
    (busy * 100).checked_div(all).unwrap_or(0) as u8
}

/// Parses the line of all CPUs together: user, nice, system, idle, iowait, irq, softirq, steal.
fn parse(text: &str) -> Option<Ticks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let counts: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let idle: u64 = counts.get(3..5)?.iter().sum();
    let all: u64 = counts.iter().sum();
    Some(Ticks { busy: all - idle, all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_busy_share_between_two_measurements() {
        let first = parse("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\n").unwrap();
        let second = parse("cpu  190 0 100 710 100 0 0 0 0 0\n").unwrap();
        assert_eq!(percent(first, second), 90);
        assert_eq!((percent(first, first), percent(second, first)), (0, 0), "also if the counters decrease");
    }

    #[test]
    fn the_load_is_read_from_the_kernel() {
        let mut meter = LoadMeter::default();
        assert_eq!(meter.measure().cpu_percent, 0, "nothing to compare with yet");
        assert!(meter.before.is_some() && meter.measure().cpu_percent <= 100);
        assert_eq!(parse("nonsense"), None);
    }
}
