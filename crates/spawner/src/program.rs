//! Start of an attempt's program: from the fork to the exec, dropping privileges step by step.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::init::{InitContext, errno};
use crate::protocol::{ExitStatus, Profile};
use crate::sandbox::root::{StepContext, StepError};
use crate::sandbox::seccomp::Instruction;
use crate::sandbox::{Mode, landlock_rules};
use crate::sys::{self, Pointers};

/// User and group id of a program inside its user namespace.
const USER_INSIDE: u32 = 1000;
/// Enough for a few system calls.
const STACK_BYTES: usize = 64 * 1024;
/// Attempts are killed before other processes of the host when memory runs out.
const OOM_SCORE: &[u8] = b"500";
/// Open files of a program without a limit of its own.
const OPEN_FILES_DEFAULT: u64 = 65_536;
/// Search path of programs if the environment has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// Everything needed to start a program. Built before the fork: between fork and exec nothing may be allocated.
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

/// Restrictions of a sandboxed program.
struct Confinement {
    /// User to switch to, in privileged mode.
    owner: Option<u32>,
    user: IdMaps,
    landlock: Option<OwnedFd>,
    filter: Vec<Instruction>,
}

/// Contents of `uid_map` and `gid_map`.
struct IdMaps {
    user: Vec<u8>,
    group: Vec<u8>,
}

impl IdMaps {
    fn new(inside: u32, user: u32, group: u32) -> Self {
        Self { user: format!("{inside} {user} 1").into_bytes(), group: format!("{inside} {group} 1").into_bytes() }
    }

    /// Applies the maps to the user namespace this process has just created.
    fn write(&self) -> io::Result<()> {
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_file(c"/proc/self/uid_map", &self.user)?;
        write_file(c"/proc/self/gid_map", &self.group)
    }
}

/// Maps a user and a group to themselves in the user namespace this process has just created.
pub fn map_to_self(user: u32, group: u32) -> io::Result<()> {
    IdMaps { user: format!("{user} {user} 1").into_bytes(), group: format!("{group} {group} 1").into_bytes() }.write()
}

fn write_file(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, bytes)?;
    Ok(())
}

impl Program {
    pub fn new(context: &InitContext<'_>, output: [OwnedFd; 2], sandboxed: bool) -> Result<Self, StepError> {
        let launch = context.launch;
        let texts = |texts: Vec<String>| texts.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let nul_byte = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let arguments = texts(launch.command.clone()).map_err(nul_byte).during("convert the command")?;
        let environment = launch.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let environment = texts(environment).map_err(nul_byte).during("convert the environment")?;
        let candidates = texts(candidates(launch.command.first().map_or("", String::as_str), &launch.environment))
            .map_err(nul_byte)
            .during("convert the command")?;
        let confinement = match sandboxed {
            true => Some(Confinement::new(context)?),
            false => None,
        };
        Ok(Self {
            candidates,
            arguments: Pointers::new(arguments),
            environment: Pointers::new(environment),
            input: context.input.as_raw_fd(),
            output,
            groups: context.groups.iter().map(AsRawFd::as_raw_fd).collect(),
            limits: limits(context),
            confinement,
            failure: None,
        })
    }

    /// Starts the program; returns its pid.
    pub fn start(&mut self) -> Result<i32, ExitStatus> {
        // Uninitialised: untouched pages cost nothing.
        let mut stack: Vec<u8> = Vec::with_capacity(STACK_BYTES);
        let started = sys::vfork_with(stack.spare_capacity_mut(), self, become_program);
        match (started, self.failure) {
            (Ok(pid), None) => Ok(pid),
            (Ok(_), Some((EXECUTE, errno))) => Err(ExitStatus::ExecFailed { errno }),
            (Ok(_), Some((step, errno))) => Err(ExitStatus::SetupFailed { step: step.to_owned(), errno }),
            (Err(error), _) => Err(ExitStatus::SetupFailed { step: "fork".to_owned(), errno: errno(&error) }),
        }
    }

    fn drop_privileges(&mut self) -> Result<(), StepError> {
        // Fails only if it is already a session leader.
        let _ = rustix::process::setsid();
        sys::redirect(self.input, 0).during("redirect standard input")?;
        sys::redirect(self.output[0].as_raw_fd(), 1).during("redirect the output")?;
        sys::redirect(self.output[1].as_raw_fd(), 2).during("redirect the output")?;
        sys::reset_signals();
        for group in &self.groups {
            sys::write_to(*group, b"0").during("join the control group")?;
        }
        // On failure the kernel's default score applies.
        let _ = write_file(c"/proc/self/oom_score_adj", OOM_SCORE);
        match &self.confinement {
            Some(confinement) => confinement.apply(&self.limits),
            None => {
                sys::die_with_parent().during("set the parent-death signal")?;
                set_limits(&self.limits)
            }
        }
    }
}

const EXECUTE: &str = "execute";

/// Runs in the memory of init, which is suspended until the exec.
fn become_program(program: &mut Program) -> ! {
    if let Err((step, error)) = program.drop_privileges() {
        program.failure = Some((step, errno(&error)));
        sys::exit(127);
    }
    let mut worst = libc::ENOENT;
    for candidate in &program.candidates {
        let error = errno(&sys::execute(candidate, &program.arguments, &program.environment));
        // Not found: try the next directory. Any other error is worth reporting; EACCES does not end the search.
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
    fn new(context: &InitContext<'_>) -> Result<Self, StepError> {
        let (owner, user, group) = match context.sandbox.mode {
            Mode::Privileged => (Some(context.owner), context.owner, context.owner),
            Mode::Unprivileged(_) | Mode::Unavailable(_) => (None, context.user.0, context.user.1),
        };
        let landlock = landlock_rules::rules().map_err(io::Error::other).during("create landlock rules")?;
        let filter = context.sandbox.filter.clone();
        Ok(Self { owner, user: IdMaps::new(USER_INSIDE, user, group), landlock, filter })
    }

    fn apply(&self, limits: &[(libc::__rlimit_resource_t, u64)]) -> Result<(), StepError> {
        if let Some(owner) = self.owner {
            sys::become_user(owner, owner).during("become an unprivileged user")?;
        }
        // Otherwise its /proc entries belong to root, and it could not write its id maps.
        sys::make_dumpable();
        sys::unshare(libc::CLONE_NEWUSER).during("create a user namespace")?;
        self.user.write().during("map the user")?;
        // After the unshare: the process limit counts only processes of this namespace.
        set_limits(limits)?;
        // Capabilities cannot be regained: they mean nothing outside this namespace, no program here has file
        // capabilities, and no-new-privileges follows.
        sys::limit_capabilities(0).during("drop capabilities")?;
        sys::forbid_new_privileges().during("set no-new-privileges")?;
        if let Some(landlock) = &self.landlock {
            sys::restrict_with_landlock(landlock.as_fd()).during("apply landlock rules")?;
        }
        sys::install_filter(&self.filter).during("install the seccomp filter")
    }
}

fn set_limits(limits: &[(libc::__rlimit_resource_t, u64)]) -> Result<(), StepError> {
    for (resource, value) in limits {
        sys::set_limit(*resource, *value).during("set resource limits")?;
    }
    Ok(())
}

fn limits(context: &InitContext<'_>) -> Vec<(libc::__rlimit_resource_t, u64)> {
    let bounds = &context.launch.bounds;
    let mut limits = vec![(libc::RLIMIT_CORE, 0)];
    let mut add = |resource, value: Option<u64>| limits.extend(value.map(|value| (resource, value)));
    add(libc::RLIMIT_NOFILE, Some(bounds.open_files.unwrap_or(OPEN_FILES_DEFAULT)));
    add(libc::RLIMIT_FSIZE, bounds.output_bytes);
    // Whole seconds per process; init checks the sum.
    add(libc::RLIMIT_CPU, bounds.cpu_ms.map(|cpu| cpu.div_ceil(1000)));
    if context.launch.profile != Profile::None {
        add(libc::RLIMIT_NPROC, bounds.processes);
    }
    if !context.sandbox.memory_groups {
        add(libc::RLIMIT_DATA, bounds.memory_bytes);
    }
    limits
}

/// Paths to try: the program's own path, or its name in each directory of `PATH`.
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
    fn a_program_is_searched_in_path() {
        let path = |text: &str| vec![("PATH".to_owned(), text.to_owned())];
        assert_eq!(candidates("ls", &path("/a:/b")), ["/a/ls", "/b/ls"]);
        assert_eq!(candidates("ls", &path("")), ["./ls"]);
        assert_eq!(candidates("./ls", &path("/a")), ["./ls"]);
        assert_eq!(candidates("ls", &[]).len(), 3);
    }
}
