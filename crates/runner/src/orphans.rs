//! Orphaned processes of unsandboxed attempts.
//!
//! Without a sandbox a process may leave its process group and session, but rarely changes its environment. Every
//! process of an attempt therefore has identifying environment variables, by which it is found again.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use model::id::NodeId;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const NODE_VARIABLE: &str = "OUTLAST_NODE";
pub(crate) const HOME_VARIABLE: &str = "OUTLAST_NODE_HOME";
pub(crate) const JOB_VARIABLE: &str = "OUTLAST_JOB_ID";
pub(crate) const ATTEMPT_VARIABLE: &str = "OUTLAST_ATTEMPT";

/// Scans of the process table: a process may fork during a scan.
const SCANS_MAX: usize = 20;

/// Identity of a node's data directory on its host: a copy of the directory has the same node id and another identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeId {
    device: u64,
    inode: u64,
}

impl HomeId {
    pub fn of(directory: &Path) -> io::Result<Self> {
        let found = fs::metadata(directory)?;
        Ok(Self { device: found.dev(), inode: found.ino() })
    }
}

impl fmt::Display for HomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.device, self.inode)
    }
}

/// Kills all processes left over from an earlier start of this node in this data directory; returns their number. To be
/// called before the node accepts work: an attempt must not run beside its own retry. Processes of a node with a copy of
/// the directory are not touched.
pub fn kill_orphans(node: NodeId, home: HomeId) -> usize {
    let mut killed = 0;
    for _ in 0..SCANS_MAX {
        let found = processes_of(node, home);
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

/// Whether a process with this environment is of an attempt of the node. Earlier versions did not name the directory.
fn is_own(environment: &[u8], node: &str, home: &str) -> bool {
    let value = |name: &str| {
        let mut variables = environment.split(|byte| *byte == 0);
        variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    };
    value(NODE_VARIABLE) == Some(node.as_bytes()) && value(HOME_VARIABLE).is_none_or(|found| found == home.as_bytes())
}

/// Live processes of the node's attempts.
fn processes_of(node: NodeId, home: HomeId) -> Vec<Pid> {
    let (node, home) = (node.to_string(), home.to_string());
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
        if is_own(&environment, &node, &home) {
            found.extend(Pid::from_raw(number));
        }
    }
    found
}
