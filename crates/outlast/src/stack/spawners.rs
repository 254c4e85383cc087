//! Spawners on this machine: they outlive the server process of their node, with its jobs.

use std::fs;
use std::path::Path;

use super::process::{Process, Stat, arguments, is_same_directory};

/// The spawner of a data directory.
#[derive(Debug)]
pub struct Spawner {
    pub process: Process,
    /// Attempts that it runs.
    pub attempts: usize,
}

/// Looks for the spawner of a data directory among the processes of this machine.
pub fn find(data_dir: &Path) -> Option<Spawner> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The first process of each attempt has the command line of its spawner, which leads their process group.
    let (leaders, attempts): (Vec<i32>, Vec<i32>) =
        pids.filter(|pid| belongs_to(*pid, data_dir)).partition(|pid| leads_its_group(*pid));
    // Looked at again once it is open: until then its pid could be used again.
    let mut opened = leaders.into_iter().filter_map(Process::open);
    let process = opened.find(|process| belongs_to(process.pid(), data_dir))?;
    Some(Spawner { process, attempts: attempts.len() })
}

/// `outlast-spawner --spawner DATA/sandbox …`
fn belongs_to(pid: i32, data_dir: &Path) -> bool {
    let arguments = arguments(pid);
    let [name, _, sandbox, ..] = arguments.as_slice() else { return false };
    name == "outlast-spawner"
        && Path::new(sandbox).parent().is_some_and(|parent| is_same_directory(parent, data_dir))
        && Stat::of(pid).is_some_and(|stat| stat.runs)
}

fn leads_its_group(pid: i32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.group == pid)
}
