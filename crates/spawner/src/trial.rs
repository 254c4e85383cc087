//! What this host can keep of what it promises, and what an attempt asks for in vain.

use std::io;
use std::os::fd::OwnedFd;

use crate::channel::file_with;
use crate::groups::{Groups, Version};
use crate::protocol::{Kept, Launch, Profile, Protections};
use crate::sandbox::{Mode, Sandbox, fence};

/// A log and an input for an attempt that does nothing.
pub fn files() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok((file_with(b"")?, file_with(b"")?))
}

/// Everything that is in force, by name.
pub fn protections(sandbox: &Sandbox, groups: &Groups, bounded: Option<u64>) -> Protections {
    let by = |means: &str| Kept::By { means: means.to_owned() };
    let missing = |why: &str| Kept::Missing { why: why.to_owned() };
    let in_sandbox = |means: &str| match &sandbox.mode {
        Mode::Prepared | Mode::Apart(_) => by(means),
        Mode::Missing(why) => missing(why),
    };
    let namespaces = match &sandbox.mode {
        Mode::Prepared => by("prepared once, an unprivileged user of the host for each attempt"),
        Mode::Apart(_) => by("made for each attempt, with the rights of this user"),
        Mode::Missing(why) => missing(why),
    };
    let landlock = match fence::version() {
        0 => missing("the kernel has no landlock"),
        version => in_sandbox(&format!("landlock version {version}")),
    };
    let group = |version: Option<Version>| match version {
        Some(Version::One) => Some("a control group (version 1)"),
        Some(Version::Two) => Some("a control group (version 2)"),
        None => None,
    };
    let memory = group(groups.memory()).unwrap_or("a limit on each process, and a look at their sum");
    let processes = match (group(groups.processes()), &sandbox.mode) {
        (Some(group), Mode::Missing(_)) => by(group),
        (_, _) => in_sandbox("a limit in a user namespace of its own"),
    };
    let host_memory = match bounded {
        Some(bound) => by(&format!("attempts together get at most {} MiB", bound >> 20)),
        None => {
            missing("no control group of version 1 for memory: the kernel decides whom it ends when memory runs out")
        }
    };
    let kept = [
        ("sandbox", namespaces),
        ("system_calls", in_sandbox("a seccomp filter")),
        ("files", landlock),
        ("network", in_sandbox("a network namespace that leads nowhere")),
        ("cpu_limit", by("a limit on each process, and a look at their sum")),
        ("memory_limit", by(memory)),
        ("processes_limit", processes),
        ("output_limit", by("a limit on each file, and a look at their sum")),
        ("host_memory", host_memory),
    ];
    Protections { kept: kept.into_iter().map(|(name, kept)| (name.to_owned(), kept)).collect() }
}

/// Why an attempt cannot be started as it asks, if it cannot.
pub fn refusal(sandbox: &Sandbox, groups: &Groups, launch: &Launch) -> Option<String> {
    let sandboxed = launch.profile != Profile::None;
    if let (Mode::Missing(why), true) = (&sandbox.mode, sandboxed) {
        return Some(format!("this host cannot make a sandbox ({why})"));
    }
    if launch.bounds.processes.is_some() && groups.processes().is_none() && !sandboxed {
        return Some("this host can bound the number of processes only in a sandbox".to_owned());
    }
    None
}
