//! Processes that outlived what started them.
//!
//! Without a sandbox nothing holds a process tree together: children may leave their group and
//! their session. What they rarely leave is their environment, so every process of an attempt is
//! marked there, and found again by it.

use std::fs;

use model::id::NodeId;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const NODE_MARK: &str = "OUTLAST_NODE";
pub(crate) const JOB_MARK: &str = "OUTLAST_JOB_ID";
pub(crate) const ATTEMPT_MARK: &str = "OUTLAST_ATTEMPT";

/// How often the process table is looked through: a process may fork while it is being looked at.
const ROUNDS_MAX: usize = 20;

/// Ends every process that an earlier start of this node has left behind, and says how many there were.
/// Called before the node takes work: no attempt may run beside its own rerun.
pub fn end_leftovers(node: NodeId) -> usize {
    end_marked(&[format!("{NODE_MARK}={node}")])
}

fn end_marked(marks: &[String]) -> usize {
    let mut ended = 0;
    for _ in 0..ROUNDS_MAX {
        let found = marked(marks);
        if found.is_empty() {
            break;
        }
        for pid in found {
            // It may have ended by itself in the meantime.
            if kill_process(pid, Signal::KILL).is_ok() {
                ended += 1;
            }
        }
    }
    ended
}

/// Live processes whose environment carries all marks.
fn marked(marks: &[String]) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A server that is itself started by a job of its own node must not end itself.
        if rustix::process::getpid().as_raw_nonzero().get() == number {
            continue;
        }
        // Of processes of other users nothing can be read, and none of them is ours.
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        if marks.iter().all(|mark| variables.contains(&mark.as_bytes()))
            && let Some(pid) = Pid::from_raw(number)
        {
            found.push(pid);
        }
    }
    found
}
