//! Process trees, read from /proc.

use std::fs;

/// All descendants of a process, breadth first.
pub fn descendants(of: i32) -> Vec<i32> {
    let mut found = Vec::new();
    collect_children(of, &mut found);
    let mut next = 0;
    while next < found.len() && found.len() < DESCENDANTS_MAX {
        let pid = found[next];
        collect_children(pid, &mut found);
        next += 1;
    }
    found
}

/// Larger trees are read in part: a fork bomb must not keep its init busy.
const DESCENDANTS_MAX: usize = 20_000;

fn collect_children(pid: i32, found: &mut Vec<i32>) {
    // Children are listed under the thread that forked them.
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let Ok(text) = fs::read_to_string(thread.path().join("children")) else { continue };
        found.extend(text.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok()));
    }
}

/// Resource usage of a set of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time of the processes and of their reaped children.
    pub cpu_us: u64,
    pub memory_bytes: u64,
}

/// Resource usage of all descendants of a process.
pub fn tree_usage(root: i32) -> Usage {
    let mut total = Usage::default();
    for pid in [root].into_iter().chain(descendants(root)) {
        let Some(stat) = fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|text| parse_stat(&text)) else {
            continue;
        };
        // The root is init: only its reaped children count.
        total.cpu_us += stat.children_cpu_us + if pid == root { 0 } else { stat.cpu_us };
        total.memory_bytes += if pid == root { 0 } else { stat.memory_bytes };
    }
    total
}

/// Resource usage of one process and its reaped children.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_us: u64,
    children_cpu_us: u64,
    memory_bytes: u64,
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The program name is in parentheses and may contain anything, including parentheses.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // Field numbers of `man proc_pid_stat`, minus three.
    let micros = |ticks: u64| ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(Stat {
        cpu_us: micros(number(11)? + number(12)?),
        children_cpu_us: micros(number(13)? + number(14)?),
        memory_bytes: number(21)? * rustix::param::page_size() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_may_contain_parentheses() {
        let text = "12 (a) b) R 1 1 1 0 -1 4194304 90 0 0 0 7 3 2 1 20 0 1 0 1 1 5 18446744073709551615";
        let used = parse_stat(text).unwrap();
        let tick = 1_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!((used.cpu_us, used.children_cpu_us), (10 * tick, 3 * tick));
        assert_eq!(used.memory_bytes, 5 * rustix::param::page_size() as u64);
        assert_eq!(parse_stat("12 (x"), None);
    }

    #[test]
    fn a_child_is_a_descendant_of_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = rustix::process::getpid().as_raw_nonzero().get();
        assert!(descendants(own).contains(&child.id().cast_signed()));
        while tree_usage(own).memory_bytes == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
