//! Processes of a node, found and signalled by their ids.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// The spawner of the server with this data directory. The init processes of its attempts have the same command line;
/// the spawner is the leader of their process group.
pub fn spawner(data: &Path) -> Option<u32> {
    spawner_processes(data).into_iter().find(|(pid, group)| pid == group).map(|(pid, _)| pid)
}

/// Process id and process group of the spawner and of the init processes of its attempts.
fn spawner_processes(data: &Path) -> Vec<(u32, u32)> {
    let scratch = data.join("scratch").display().to_string();
    let process = |entry: std::fs::DirEntry| {
        let line = String::from_utf8_lossy(&std::fs::read(entry.path().join("cmdline")).ok()?).into_owned();
        let is_ours = line.starts_with("outlast-spawner") && line.split('\0').any(|word| word == scratch);
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok().filter(|_| is_ours)?;
        let group = stat.rsplit_once(") ")?.1.split(' ').nth(2)?.parse().ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, group))
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(process).collect()
}

/// Kills the spawner and the init processes of its attempts.
pub fn kill_spawner(data: &Path) {
    for (pid, _) in spawner_processes(data) {
        send(pid, Signal::KILL);
    }
}

/// Sends a signal. The process may have ended.
pub fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    let _ = kill_process(pid, signal);
}

/// Running, and not a zombie.
pub fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}
