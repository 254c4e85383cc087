//! Orphaned processes of unsandboxed attempts.
//!
//! Without a sandbox a process may leave its process group and session, but rarely changes its environment. Every
//! process of an attempt therefore has identifying environment variables, by which it is found again.

use std::fs;

use model::id::NodeId;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const NODE_VARIABLE: &str = "OUTLAST_NODE";
pub(crate) const JOB_VARIABLE: &str = "OUTLAST_JOB_ID";
pub(crate) const ATTEMPT_VARIABLE: &str = "OUTLAST_ATTEMPT";

/// Scans of the process table: a process may fork during a scan.
const SCANS_MAX: usize = 20;

/// Kills all processes left over from an earlier start of this node; returns their number. To be called before the node
/// accepts work: an attempt must not run beside its own retry.
pub fn kill_orphans(node: NodeId) -> usize {
    let variable = format!("{NODE_VARIABLE}={node}");
    let mut killed = 0;
    for _ in 0..SCANS_MAX {
        let found = processes_with(&variable);
        if found.is_empty() {
            break;
        }
        for pid in found {
            // Fails if it has ended in the meantime.
            if kill_process(pid, Signal::KILL).is_ok() {
                killed += 1;
            }
        }
    }
    killed
}

/// Live processes with this environment variable (`NAME=value`).
fn processes_with(variable: &str) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A server started by a job of its own node must not kill itself.
        if rustix::process::getpid().as_raw_nonzero().get() == number {
            continue;
        }
        // Unreadable for processes of other users, none of which belongs to this node.
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|other| other == variable.as_bytes())
            && let Some(pid) = Pid::from_raw(number)
        {
            found.push(pid);
        }
    }
    found
}
