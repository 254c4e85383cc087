//! Sandbox of an attempt: namespaces, root file system, seccomp filter and landlock rules.

pub mod landlock_rules;
pub mod root;
pub mod seccomp;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::protocol::{Launch, Profile};
use crate::sys;
use root::{Directories, StepContext, StepError};

/// How sandboxes are built on this host.
#[derive(Debug)]
pub enum Mode {
    /// As root: root file system and network are built once, and each attempt takes a copy.
    Privileged,
    /// As an unprivileged user: each attempt builds everything in its own user namespace.
    Unprivileged(Directories),
    /// With the reason.
    Unavailable(String),
}

/// The host's namespaces, for attempts that need them.
#[derive(Debug)]
struct HostNamespaces {
    mounts: OwnedFd,
    network: OwnedFd,
}

/// Everything needed to build sandboxes.
#[derive(Debug)]
pub struct Sandbox {
    pub mode: Mode,
    pub directories: Directories,
    pub filter: Vec<seccomp::Instruction>,
    host: Option<HostNamespaces>,
    /// Memory is limited by control groups instead of per process.
    pub memory_groups: bool,
}

impl Sandbox {
    /// Builds everything that attempts can share. The calling process must have one thread.
    pub fn prepare(directories: Directories) -> Self {
        let (mode, host) = match is_host_root().then(|| build_shared(&directories)) {
            Some(Ok(host)) => (Mode::Privileged, Some(host)),
            // No fallback to the unprivileged mode: without a user to switch to, a program would be the host's root for
            // everything that checks the user id instead of capabilities, such as kernel settings.
            Some(Err((step, error))) => (Mode::Unavailable(format!("{step}: {error}")), None),
            None => (Mode::Unprivileged(directories.clone()), None),
        };
        Self { mode, directories, filter: seccomp::program(), host, memory_groups: false }
    }

    /// Namespaces to create for an attempt's init.
    pub fn namespaces(&self, launch: &Launch) -> i32 {
        let own = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        match (&self.mode, launch.profile) {
            (_, Profile::None) | (Mode::Unavailable(_), _) => 0,
            (Mode::Privileged, Profile::Strict) => own | libc::CLONE_NEWNET,
            (Mode::Privileged, Profile::Standard) => own,
            (Mode::Unprivileged(_), Profile::Standard) if launch.network => own | libc::CLONE_NEWUSER,
            (Mode::Unprivileged(_), _) => own | libc::CLONE_NEWUSER | libc::CLONE_NEWNET,
        }
    }

    /// Enters the attempt's network, or raises the loopback of a new one.
    pub fn enter_network(&self, launch: &Launch) -> Result<(), StepError> {
        match (launch.profile, launch.network, &self.host) {
            (Profile::Standard, true, Some(host)) => {
                sys::setns(host.network.as_fd(), libc::CLONE_NEWNET).during("enter the host's network namespace")
            }
            (Profile::Standard, true, None) | (Profile::Standard, false, Some(_)) | (Profile::None, ..) => Ok(()),
            (Profile::Strict, ..) | (Profile::Standard, false, None) => {
                sys::raise_loopback().during("raise the loopback")
            }
        }
    }

    /// Returns this process to the host's namespaces, for an attempt without a sandbox.
    pub fn return_to_host(&self) -> io::Result<()> {
        let Some(host) = &self.host else { return Ok(()) };
        sys::setns(host.network.as_fd(), libc::CLONE_NEWNET)?;
        sys::setns(host.mounts.as_fd(), libc::CLONE_NEWNS)
    }

    /// Descriptors that an attempt's init needs.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.host.iter().flat_map(|host| [host.mounts.as_raw_fd(), host.network.as_raw_fd()])
    }

    /// User id that attempts in this slot run as.
    pub fn owner(&self, first: u32, slot: usize) -> u32 {
        match self.mode {
            Mode::Privileged => first + slot as u32,
            Mode::Unprivileged(_) | Mode::Unavailable(_) => rustix::process::getuid().as_raw(),
        }
    }

    /// Path of the node's scratch directory for this process.
    pub fn scratch(&self) -> std::path::PathBuf {
        match self.mode {
            Mode::Privileged => root::SCRATCH.into(),
            Mode::Unprivileged(_) | Mode::Unavailable(_) => self.directories.scratch.clone(),
        }
    }
}

/// Whether this process is root on the host, not only in a user namespace.
fn is_host_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_whole = map.split_ascii_whitespace().take(2).eq(["0", "0"]);
    rustix::process::geteuid().is_root() && (is_whole || map.is_empty())
}

fn build_shared(directories: &Directories) -> Result<HostNamespaces, StepError> {
    let namespace = |path: &str| File::open(path).map(OwnedFd::from);
    let host = HostNamespaces {
        mounts: namespace("/proc/self/ns/mnt").during("open the host's mount namespace")?,
        network: namespace("/proc/self/ns/net").during("open the host's network namespace")?,
    };
    let built = sys::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET)
        .during("create namespaces")
        .and_then(|()| sys::raise_loopback().during("raise the loopback"))
        .and_then(|()| root::build(directories));
    if let Err(error) = built {
        let _ = sys::setns(host.network.as_fd(), libc::CLONE_NEWNET);
        let _ = sys::setns(host.mounts.as_fd(), libc::CLONE_NEWNS);
        return Err(error);
    }
    Ok(host)
}
