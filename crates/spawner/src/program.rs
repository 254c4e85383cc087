//! The program of an attempt: from a fork to its first instruction, giving up one right after the other.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::init::{Beginning, errno};
use crate::protocol::{Profile, Verdict};
use crate::sandbox::filter::Instruction;
use crate::sandbox::root::{During, Failed};
use crate::sandbox::{Mode, fence};
use crate::sys::{self, Pointers};

/// The user and group that a program believes to be.
const USER_INSIDE: u32 = 1000;
/// Enough for a few system calls.
const STACK_BYTES: usize = 64 * 1024;
/// Above everything else on the host, when memory runs out.
const OOM_SCORE: &[u8] = b"500";
/// The open files of a program that does not say how many it needs.
const OPEN_FILES_DEFAULT: u64 = 65_536;
/// Where a program is looked for when the environment does not say.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program with everything that is needed to start it. Made before the fork: between fork and exec nothing is allocated.
pub struct Program {
    candidates: Vec<CString>,
    arguments: Pointers,
    environment: Pointers,
    input: RawFd,
    output: [OwnedFd; 2],
    groups: Vec<RawFd>,
    limits: Vec<(libc::__rlimit_resource_t, u64)>,
    confinement: Option<Confinement>,
    failure: Option<(&'static str, i32)>,
}

/// What keeps a program in its sandbox.
struct Confinement {
    /// Whom to become, where this process may become others.
    owner: Option<u32>,
    user: MapLines,
    fence: Option<OwnedFd>,
    filter: Vec<Instruction>,
}

/// The lines of a map of users and one of groups.
struct MapLines {
    user: Vec<u8>,
    group: Vec<u8>,
}

impl MapLines {
    fn new(inside: u32, user: u32, group: u32) -> Self {
        Self { user: format!("{inside} {user} 1").into_bytes(), group: format!("{inside} {group} 1").into_bytes() }
    }

    /// Maps the user of the namespace that this process has just made.
    fn write(&self) -> io::Result<()> {
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_file(c"/proc/self/uid_map", &self.user)?;
        write_file(c"/proc/self/gid_map", &self.group)
    }
}

/// Maps a user and a group to themselves in the user namespace that this process has just made.
pub fn map_to_self(user: u32, group: u32) -> io::Result<()> {
    MapLines { user: format!("{user} {user} 1").into_bytes(), group: format!("{group} {group} 1").into_bytes() }.write()
}

fn write_file(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, bytes)?;
    Ok(())
}

impl Program {
    pub fn new(beginning: &Beginning<'_>, output: [OwnedFd; 2], sandboxed: bool) -> Result<Self, Failed> {
        let launch = beginning.launch;
        let texts = |texts: Vec<String>| texts.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let zero = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let arguments = texts(launch.command.clone()).map_err(zero).during("read the command")?;
        let environment = launch.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let environment = texts(environment).map_err(zero).during("read the environment")?;
        let candidates = texts(candidates(launch.command.first().map_or("", String::as_str), &launch.environment))
            .map_err(zero)
            .during("read the command")?;
        let confinement = match sandboxed {
            true => Some(Confinement::new(beginning)?),
            false => None,
        };
        Ok(Self {
            candidates,
            arguments: Pointers::new(arguments),
            environment: Pointers::new(environment),
            input: beginning.input.as_raw_fd(),
            output,
            groups: beginning.groups.iter().map(AsRawFd::as_raw_fd).collect(),
            limits: limits(beginning),
            confinement,
            failure: None,
        })
    }

    /// Starts it and returns its process's number.
    pub fn start(&mut self) -> Result<i32, Verdict> {
        // Not cleared: what is not touched costs nothing.
        let mut stack: Vec<u8> = Vec::with_capacity(STACK_BYTES);
        let started = sys::vfork_with(stack.spare_capacity_mut(), self, become_program);
        match (started, self.failure) {
            (Ok(pid), None) => Ok(pid),
            (Ok(_), Some((EXECUTE, errno))) => Err(Verdict::NoProgram { errno }),
            (Ok(_), Some((step, errno))) => Err(Verdict::NoPlace { step: step.to_owned(), errno }),
            (Err(error), _) => Err(Verdict::NoPlace { step: "fork".to_owned(), errno: errno(&error) }),
        }
    }

    fn give_up_everything(&mut self) -> Result<(), Failed> {
        // A failure only means that it already leads a session.
        let _ = rustix::process::setsid();
        sys::redirect(self.input, 0).during("give it its input")?;
        sys::redirect(self.output[0].as_raw_fd(), 1).during("give it its output")?;
        sys::redirect(self.output[1].as_raw_fd(), 2).during("give it its output")?;
        sys::reset_signals();
        for group in &self.groups {
            sys::write_to(*group, b"0").during("enter its control group")?;
        }
        // The worst is that the kernel chooses differently.
        let _ = write_file(c"/proc/self/oom_score_adj", OOM_SCORE);
        match &self.confinement {
            Some(confinement) => confinement.apply(&self.limits),
            None => {
                sys::die_with_parent().during("tie it to its keeper")?;
                set_limits(&self.limits)
            }
        }
    }
}

const EXECUTE: &str = "execute";

/// Runs in the memory of init, which waits.
fn become_program(program: &mut Program) -> ! {
    if let Err((step, error)) = program.give_up_everything() {
        program.failure = Some((step, errno(&error)));
        sys::exit(127);
    }
    let mut worst = libc::ENOENT;
    for candidate in &program.candidates {
        let error = errno(&sys::execute(candidate, &program.arguments, &program.environment));
        // The next directory may have it; one that may not be executed is worth telling of.
        if error != libc::ENOENT && error != libc::ENOTDIR {
            worst = error;
            if error != libc::EACCES {
                break;
            }
        }
    }
    program.failure = Some((EXECUTE, worst));
    sys::exit(127)
}

impl Confinement {
    fn new(beginning: &Beginning<'_>) -> Result<Self, Failed> {
        let (owner, user, group) = match beginning.sandbox.mode {
            Mode::Prepared => (Some(beginning.owner), beginning.owner, beginning.owner),
            Mode::Apart(_) | Mode::Missing(_) => (None, beginning.user.0, beginning.user.1),
        };
        let fence = fence::rules().map_err(io::Error::other).during("make landlock's rules")?;
        let filter = beginning.sandbox.filter.clone();
        Ok(Self { owner, user: MapLines::new(USER_INSIDE, user, group), fence, filter })
    }

    fn apply(&self, limits: &[(libc::__rlimit_resource_t, u64)]) -> Result<(), Failed> {
        if let Some(owner) = self.owner {
            sys::become_user(owner, owner).during("become an unprivileged user")?;
        }
        // Else its own /proc belongs to root, and it could not map itself.
        sys::make_dumpable();
        sys::unshare(libc::CLONE_NEWUSER).during("make a user namespace")?;
        self.user.write().during("map the user")?;
        // After the namespace: processes are counted in it, and only its own.
        set_limits(limits)?;
        // None are left to be had: nothing outside of its own namespace would heed them, no program here has any to
        // give, and new privileges are forbidden next.
        sys::keep_capabilities(0).during("give up capabilities")?;
        sys::forbid_new_privileges().during("forbid new privileges")?;
        if let Some(fence) = &self.fence {
            sys::restrict_with_landlock(fence.as_fd()).during("put landlock in force")?;
        }
        sys::install_filter(&self.filter).during("filter system calls")
    }
}

fn set_limits(limits: &[(libc::__rlimit_resource_t, u64)]) -> Result<(), Failed> {
    for (resource, value) in limits {
        sys::set_limit(*resource, *value).during("set its limits")?;
    }
    Ok(())
}

fn limits(beginning: &Beginning<'_>) -> Vec<(libc::__rlimit_resource_t, u64)> {
    let bounds = &beginning.launch.bounds;
    let mut limits = vec![(libc::RLIMIT_CORE, 0)];
    let mut add = |resource, value: Option<u64>| limits.extend(value.map(|value| (resource, value)));
    add(libc::RLIMIT_NOFILE, Some(bounds.open_files.unwrap_or(OPEN_FILES_DEFAULT)));
    add(libc::RLIMIT_FSIZE, bounds.output_bytes);
    // In whole seconds, and for each process; the sum is looked after by init.
    add(libc::RLIMIT_CPU, bounds.cpu_ms.map(|cpu| cpu.div_ceil(1000)));
    if beginning.launch.profile != Profile::None {
        add(libc::RLIMIT_NPROC, bounds.processes);
    }
    if !beginning.sandbox.memory_groups {
        add(libc::RLIMIT_DATA, bounds.memory_bytes);
    }
    limits
}

/// Where a program may be: at its path, or in one of the directories for programs.
fn candidates(program: &str, environment: &[(String, String)]) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let path = environment.iter().find(|(name, _)| name == "PATH").map_or(PATH_DEFAULT, |(_, value)| value.as_str());
    path.split(':')
        .map(|directory| if directory.is_empty() { "." } else { directory })
        .map(|directory| format!("{directory}/{program}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_where_the_environment_says() {
        let path = |text: &str| vec![("PATH".to_owned(), text.to_owned())];
        assert_eq!(candidates("ls", &path("/a:/b")), ["/a/ls", "/b/ls"]);
        assert_eq!(candidates("ls", &path("")), ["./ls"]);
        assert_eq!(candidates("./ls", &path("/a")), ["./ls"]);
        assert_eq!(candidates("ls", &[]).len(), 3);
    }
}
