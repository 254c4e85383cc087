//! Control groups: bounds on memory and processes of an attempt as a whole, where the host has the controllers.
//!
//! Hosts differ: version 1, version 2, or some of each, and often no right to use them. What is here is found by trying.
//! A slot's group is made once and used again: making one costs more than starting a program.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::protocol::{Launch, Profile};

/// What of the machine's memory attempts never get, so that the host stays in command: a twentieth, at least this.
const RESERVE_BYTES_MIN: u64 = 256 << 20;

/// How a controller is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

impl Version {
    fn memory_limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// Without it, memory beyond the limit goes to swap.
    fn swap_limit(self) -> (&'static str, bool) {
        match self {
            Self::One => ("memory.memsw.limit_in_bytes", true),
            Self::Two => ("memory.swap.max", false),
        }
    }

    /// Where the kernel counts whom it has killed for lack of memory.
    fn kills(self) -> &'static str {
        match self {
            Self::One => "memory.oom_control",
            Self::Two => "memory.events",
        }
    }
}

/// A controller's directory for this node.
#[derive(Debug)]
struct Controller {
    version: Version,
    directory: OwnedFd,
}

/// The groups of one slot.
#[derive(Debug, Default)]
struct Cell {
    memory: Option<Group>,
    processes: Option<Group>,
}

#[derive(Debug)]
struct Group {
    directory: OwnedFd,
    members: OwnedFd,
    limit: Option<u64>,
}

/// All control groups of a node's attempts.
#[derive(Debug, Default)]
pub struct Groups {
    memory: Option<Controller>,
    processes: Option<Controller>,
    cells: Vec<Cell>,
    /// To be removed at the end.
    made: Vec<PathBuf>,
}

impl Groups {
    /// Finds out what this host allows. `name` is this node's own.
    pub fn find(name: &str) -> Self {
        let mut groups = Self::default();
        groups.memory = groups.controller("memory", name);
        groups.processes = groups.controller("pids", name);
        groups
    }

    pub fn memory(&self) -> Option<Version> {
        self.memory.as_ref().map(|controller| controller.version)
    }

    pub fn processes(&self) -> Option<Version> {
        self.processes.as_ref().map(|controller| controller.version)
    }

    fn controller(&mut self, controller: &str, name: &str) -> Option<Controller> {
        for (version, parent) in parents(controller) {
            let path = parent.join(name);
            if version == Version::Two {
                // Refused where it is on already or not ours to say; whether it is in force is seen below.
                let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
            }
            if fs::create_dir(&path).is_err() && !path.is_dir() {
                continue;
            }
            let _ = fs::write(path.join("cgroup.subtree_control"), format!("+{controller}"));
            let limit = if controller == "memory" { version.memory_limit() } else { "pids.max" };
            let usable = path.join(limit).is_file() && path.join("cgroup.procs").is_file();
            let opened = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            match opened {
                Ok(directory) if usable => {
                    self.made.push(path);
                    return Some(Controller { version, directory });
                }
                _ => drop(fs::remove_dir(&path)),
            }
        }
        None
    }

    /// Puts this process, and so all attempts, under a common bound that leaves the host some memory.
    pub fn bound_all(&self) -> io::Result<u64> {
        let controller = self.memory.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // Version 2 has processes only in groups without groups below.
        if controller.version == Version::Two {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let total = memory_of_the_machine().ok_or(io::ErrorKind::Unsupported)?;
        let bound = total.saturating_sub((total / 20).max(RESERVE_BYTES_MIN)).max(RESERVE_BYTES_MIN);
        let directory = controller.directory.as_fd();
        write_at(directory, controller.version.memory_limit(), &bound.to_string())?;
        write_at(directory, "cgroup.procs", "0")?;
        Ok(bound)
    }

    /// The groups that an attempt becomes a member of, set up for it. Only where nothing else will do: becoming a
    /// member takes the kernel some 12 ms, many times what all the rest of a start takes. In a sandbox the number of
    /// processes is bounded exactly by a limit in a user namespace of its own.
    pub fn enlist(&mut self, slot: usize, launch: &Launch) -> io::Result<Vec<BorrowedFd<'_>>> {
        let bounds = &launch.bounds;
        let processes_max = bounds.processes.filter(|_| launch.profile == Profile::None);
        while self.cells.len() <= slot {
            self.cells.push(Cell::default());
        }
        let cell = &mut self.cells[slot];
        if let (Some(limit), Some(controller)) = (bounds.memory_bytes, &self.memory) {
            let group = group_of(&mut cell.memory, controller, slot)?;
            if group.limit != Some(limit) {
                limit_memory(controller.version, group.directory.as_fd(), limit)?;
                group.limit = Some(limit);
            }
        }
        if let (Some(limit), Some(controller)) = (processes_max, &self.processes) {
            let group = group_of(&mut cell.processes, controller, slot)?;
            if group.limit != Some(limit) {
                write_at(group.directory.as_fd(), "pids.max", &limit.to_string())?;
                group.limit = Some(limit);
            }
        }
        let cell = &self.cells[slot];
        let memory = cell.memory.as_ref().filter(|_| bounds.memory_bytes.is_some());
        let processes = cell.processes.as_ref().filter(|_| processes_max.is_some());
        Ok([memory, processes].into_iter().flatten().map(|group| group.members.as_fd()).collect())
    }

    /// How often the kernel has killed something in a slot's group for lack of memory.
    pub fn memory_kills(&self, slot: usize) -> u64 {
        let read = || {
            let controller = self.memory.as_ref()?;
            let group = self.cells.get(slot)?.memory.as_ref()?;
            let text = read_at(group.directory.as_fd(), controller.version.kills()).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
        };
        read().unwrap_or(0)
    }

    /// Removes what was made. Groups with members stay.
    pub fn remove(&self) {
        for controller in [&self.memory, &self.processes].into_iter().flatten() {
            for slot in 0..self.cells.len() {
                let _ = rustix::fs::unlinkat(&controller.directory, slot_name(slot), AtFlags::REMOVEDIR);
            }
        }
        for path in &self.made {
            let _ = rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR);
        }
    }
}

fn slot_name(slot: usize) -> String {
    format!("slot-{slot}")
}

fn group_of<'a>(group: &'a mut Option<Group>, controller: &Controller, slot: usize) -> io::Result<&'a mut Group> {
    if group.is_none() {
        let name = slot_name(slot);
        match rustix::fs::mkdirat(&controller.directory, &name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let open = |at: BorrowedFd<'_>, name: &str, flags| rustix::fs::openat(at, name, flags, Mode::empty());
        let directory = open(controller.directory.as_fd(), &name, OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        let members = open(directory.as_fd(), "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC)?;
        *group = Some(Group { directory, members, limit: None });
    }
    group.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn limit_memory(version: Version, group: BorrowedFd<'_>, limit: u64) -> io::Result<()> {
    let (swap, counts_both) = version.swap_limit();
    // Version 1 keeps memory below memory and swap together, whichever way they are changed: lift that one first.
    if counts_both {
        let _ = write_at(group, swap, "-1");
    }
    write_at(group, version.memory_limit(), &limit.to_string())?;
    // Hosts without swap often lack the file.
    let _ = write_at(group, swap, &if counts_both { limit } else { 0 }.to_string());
    Ok(())
}

fn write_at(directory: BorrowedFd<'_>, name: &str, text: &str) -> io::Result<()> {
    let file = rustix::fs::openat(directory, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes())?;
    Ok(())
}

fn read_at(directory: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    io::read_to_string(fs::File::from(file))
}

fn memory_of_the_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Where groups with a controller may be made, the best place first.
fn parents(controller: &str) -> Vec<(Version, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    places(&mounts, &own, controller)
}

fn places(mounts: &str, own: &str, controller: &str) -> Vec<(Version, PathBuf)> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((mount, kind)) = line.split_once(" - ") else { continue };
        let (mount, kind): (Vec<&str>, Vec<&str>) = (mount.split(' ').collect(), kind.split(' ').collect());
        let ([_, _, _, root, point, ..], [kind, _, options, ..]) = (&mount[..], &kind[..]) else { continue };
        let version = match *kind {
            "cgroup" if options.split(',').any(|option| option == controller) => Version::One,
            "cgroup2" => Version::Two,
            _ => continue,
        };
        let member = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let matches = match version {
                Version::One => controllers.split(',').any(|one| one == controller),
                Version::Two => controllers.is_empty(),
            };
            matches.then_some(path)
        });
        let point = Path::new(point);
        if let Some(below) = member.and_then(|path| Path::new(path).strip_prefix(root).ok()) {
            found.push((version, point.join(below)));
        }
        if version == Version::Two {
            found.push((version, point.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 22 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 22 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 22 0:29 /docker/1 /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids";

    #[test]
    fn groups_are_made_below_our_own() {
        let own = "8:pids:/docker/1/x\n4:memory:/a/b\n0::/c\n";
        let memory = places(MOUNTS, own, "memory");
        assert_eq!(memory[0], (Version::One, PathBuf::from("/sys/fs/cgroup/memory/a/b")));
        assert_eq!(memory[1], (Version::Two, PathBuf::from("/sys/fs/cgroup/unified/c")));
        assert_eq!(memory[2], (Version::Two, PathBuf::from("/sys/fs/cgroup/unified")));
        let pids = places(MOUNTS, own, "pids");
        assert!(pids.contains(&(Version::One, PathBuf::from("/sys/fs/cgroup/pids/x"))));
    }

    proptest::proptest! {
        #[test]
        fn any_text_of_the_kernels_ends_without_a_panic(mounts in ".{0,200}", own in ".{0,100}") {
            places(&mounts, &own, "memory");
        }
    }
}
