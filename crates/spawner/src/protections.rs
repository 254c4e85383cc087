//! Protections this host can enforce, and the check of a launch against them.

use std::io;
use std::os::fd::OwnedFd;

use crate::cgroups::{CgroupVersion, Cgroups};
use crate::channel::memfd_with;
use crate::protocol::{Enforcement, Launch, Profile, Protections};
use crate::sandbox::{Mode, Sandbox, landlock_rules};

/// Log and input of a sandbox probe.
pub fn probe_files() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok((memfd_with(b"")?, memfd_with(b"")?))
}

/// All protections by name, with the mechanism or the reason why it is missing. `memory_total` is the limit on all
/// attempts together.
pub fn protections(sandbox: &Sandbox, groups: &Cgroups, memory_total: Option<u64>) -> Protections {
    let active = |mechanism: &str| Enforcement::Active { mechanism: mechanism.to_owned() };
    let missing = |reason: &str| Enforcement::Missing { reason: reason.to_owned() };
    let in_sandbox = |mechanism: &str| match &sandbox.mode {
        Mode::Privileged | Mode::Unprivileged(_) => active(mechanism),
        Mode::Unavailable(reason) => missing(reason),
    };
    let namespaces = match &sandbox.mode {
        Mode::Privileged => active("built once, with an unprivileged user of the host for each attempt"),
        Mode::Unprivileged(_) => active("built for each attempt, with the privileges of the server's user"),
        Mode::Unavailable(reason) => missing(reason),
    };
    let landlock = match landlock_rules::version() {
        0 => missing("the kernel has no landlock"),
        version => in_sandbox(&format!("landlock version {version}")),
    };
    let group = |version: Option<CgroupVersion>| match version {
        Some(CgroupVersion::V1) => Some("a control group (version 1)"),
        Some(CgroupVersion::V2) => Some("a control group (version 2)"),
        None => None,
    };
    let memory = group(groups.memory()).unwrap_or("a limit on each process, and polling of their sum");
    let processes = match (group(groups.processes()), &sandbox.mode) {
        (Some(group), Mode::Unavailable(_)) => active(group),
        (_, _) => in_sandbox("a limit in a user namespace of its own"),
    };
    let host_memory = match memory_total {
        Some(limit) => active(&format!("all attempts together get at most {} MiB", limit >> 20)),
        None => {
            missing("no control group of version 1 for memory: when memory runs out, the kernel chooses what to kill")
        }
    };
    let entries = [
        ("sandbox", namespaces),
        ("system_calls", in_sandbox("a seccomp filter")),
        ("files", landlock),
        ("network", in_sandbox("a network namespace without outside connection")),
        ("cpu_limit", active("a limit on each process, and polling of their sum")),
        ("memory_limit", active(memory)),
        ("processes_limit", processes),
        ("output_limit", active("a limit on each file, and polling of their sum")),
        ("host_memory", host_memory),
    ];
    Protections { entries: entries.into_iter().map(|(name, entry)| (name.to_owned(), entry)).collect() }
}

/// Why this host cannot run the launch as required; `None` if it can.
pub fn refusal(sandbox: &Sandbox, groups: &Cgroups, launch: &Launch) -> Option<String> {
    let sandboxed = launch.profile != Profile::None;
    if let (Mode::Unavailable(reason), true) = (&sandbox.mode, sandboxed) {
        return Some(format!("this host cannot create a sandbox ({reason})"));
    }
    if launch.bounds.processes.is_some() && groups.processes().is_none() && !sandboxed {
        return Some("this host can limit the number of processes only in a sandbox".to_owned());
    }
    None
}
