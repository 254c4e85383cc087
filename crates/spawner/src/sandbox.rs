//! What keeps an attempt apart from its host, as far as this host can.

pub mod fence;
pub mod filter;
pub mod root;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::protocol::{Launch, Profile};
use crate::sys;
use root::{During, Failed, Places};

/// How sandboxes are made here.
#[derive(Debug)]
pub enum Mode {
    /// With the rights of root: root file system and network are made once, and each attempt takes a copy.
    Prepared,
    /// As an ordinary user: each attempt makes everything in a user namespace of its own.
    Apart(Places),
    /// Not at all, and why.
    Missing(String),
}

/// The host's namespaces, to return to.
#[derive(Debug)]
struct Host {
    mounts: OwnedFd,
    network: OwnedFd,
}

/// All that is needed to make sandboxes.
#[derive(Debug)]
pub struct Sandbox {
    pub mode: Mode,
    pub places: Places,
    pub filter: Vec<filter::Instruction>,
    host: Option<Host>,
    /// Memory is bounded by control groups, not by each process's own limit.
    pub memory_groups: bool,
}

impl Sandbox {
    /// Prepares whatever can be made once. The calling process has one thread.
    pub fn prepare(places: Places) -> Self {
        let (mode, host) = match is_host_root().then(|| make_once(&places)) {
            Some(Ok(host)) => (Mode::Prepared, Some(host)),
            // The way of ordinary users is none for root: without a user to become, a program would be the host's root
            // to everything that asks for the user and not for capabilities, such as the kernel's settings.
            Some(Err((step, error))) => (Mode::Missing(format!("{step}: {error}")), None),
            None => (Mode::Apart(places.clone()), None),
        };
        Self { mode, places, filter: filter::program(), host, memory_groups: false }
    }

    /// The namespaces that an attempt's first process begins in.
    pub fn namespaces(&self, launch: &Launch) -> i32 {
        let own = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        match (&self.mode, launch.profile) {
            (_, Profile::None) | (Mode::Missing(_), _) => 0,
            (Mode::Prepared, Profile::Strict) => own | libc::CLONE_NEWNET,
            (Mode::Prepared, Profile::Standard) => own,
            (Mode::Apart(_), Profile::Standard) if launch.network => own | libc::CLONE_NEWUSER,
            (Mode::Apart(_), _) => own | libc::CLONE_NEWUSER | libc::CLONE_NEWNET,
        }
    }

    /// Takes the network that an attempt is to have, where it was not born into it.
    pub fn enter_network(&self, launch: &Launch) -> Result<(), Failed> {
        match (launch.profile, launch.network, &self.host) {
            (Profile::Standard, true, Some(host)) => {
                sys::setns(host.network.as_fd(), libc::CLONE_NEWNET).during("enter the host's network")
            }
            (Profile::Standard, true, None) | (Profile::Standard, false, Some(_)) | (Profile::None, ..) => Ok(()),
            (Profile::Strict, ..) | (Profile::Standard, false, None) => {
                sys::raise_loopback().during("raise the loopback")
            }
        }
    }

    /// Back to where this process would be if nothing had been prepared.
    pub fn return_to_host(&self) -> io::Result<()> {
        let Some(host) = &self.host else { return Ok(()) };
        sys::setns(host.network.as_fd(), libc::CLONE_NEWNET)?;
        sys::setns(host.mounts.as_fd(), libc::CLONE_NEWNS)
    }

    /// Descriptors that an attempt's first process needs.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.host.iter().flat_map(|host| [host.mounts.as_raw_fd(), host.network.as_raw_fd()])
    }

    /// The user that attempts in this slot run as, if it is not this process's own.
    pub fn owner(&self, first: u32, slot: usize) -> u32 {
        match self.mode {
            Mode::Prepared => first + slot as u32,
            Mode::Apart(_) | Mode::Missing(_) => rustix::process::getuid().as_raw(),
        }
    }

    /// The node's scratch directory, as this process sees it.
    pub fn scratch(&self) -> std::path::PathBuf {
        match self.mode {
            Mode::Prepared => root::SCRATCH.into(),
            Mode::Apart(_) | Mode::Missing(_) => self.places.scratch.clone(),
        }
    }
}

/// Whether this process is the root of the host itself, not of a container with users of its own.
fn is_host_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_whole = map.split_ascii_whitespace().take(2).eq(["0", "0"]);
    rustix::process::geteuid().is_root() && (is_whole || map.is_empty())
}

fn make_once(places: &Places) -> Result<Host, Failed> {
    let namespace = |path: &str| File::open(path).map(OwnedFd::from);
    let host = Host {
        mounts: namespace("/proc/self/ns/mnt").during("open the host's mounts")?,
        network: namespace("/proc/self/ns/net").during("open the host's network")?,
    };
    let made = sys::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET)
        .during("make namespaces")
        .and_then(|()| sys::raise_loopback().during("raise the loopback"))
        .and_then(|()| root::build(places));
    if let Err(failed) = made {
        let _ = sys::setns(host.network.as_fd(), libc::CLONE_NEWNET);
        let _ = sys::setns(host.mounts.as_fd(), libc::CLONE_NEWNS);
        return Err(failed);
    }
    Ok(host)
}
