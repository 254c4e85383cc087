//! Control groups: limits on memory and processes of a whole attempt, where the host has the controllers.
//!
//! Hosts have version 1, version 2 or a mix, often without the permission to use them; this is found out by trying. A
//! slot's group is created once and reused: creating one costs more than starting a program.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::protocol::{Launch, Profile};

/// Minimum memory reserved for the host. The reserve is a twentieth of the machine's memory, at least this.
const RESERVE_BYTES_MIN: u64 = 256 << 20;

/// Interface version of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

impl CgroupVersion {
    fn memory_limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }

    /// Swap limit, without which memory beyond the limit goes to swap, and whether it counts memory as well.
    fn swap_limit_file(self) -> (&'static str, bool) {
        match self {
            Self::V1 => ("memory.memsw.limit_in_bytes", true),
            Self::V2 => ("memory.swap.max", false),
        }
    }

    /// File with the kernel's counter of OOM kills.
    fn oom_counter_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.oom_control",
            Self::V2 => "memory.events",
        }
    }
}

/// Directory of this node under a controller.
#[derive(Debug)]
struct Controller {
    version: CgroupVersion,
    directory: OwnedFd,
}

/// Control groups of one slot.
#[derive(Debug, Default)]
struct SlotGroups {
    memory: Option<Group>,
    processes: Option<Group>,
}

#[derive(Debug)]
struct Group {
    directory: OwnedFd,
    members: OwnedFd,
    limit: Option<u64>,
}

/// Control groups of a node's attempts.
#[derive(Debug, Default)]
pub struct Cgroups {
    memory: Option<Controller>,
    processes: Option<Controller>,
    slots: Vec<SlotGroups>,
    /// Removed on shutdown.
    created: Vec<PathBuf>,
}

impl Cgroups {
    /// Finds the usable controllers of this host and creates this node's group `name` in them.
    pub fn find(name: &str) -> Self {
        let mut groups = Self::default();
        groups.memory = groups.controller("memory", name);
        groups.processes = groups.controller("pids", name);
        groups
    }

    pub fn memory(&self) -> Option<CgroupVersion> {
        self.memory.as_ref().map(|controller| controller.version)
    }

    pub fn processes(&self) -> Option<CgroupVersion> {
        self.processes.as_ref().map(|controller| controller.version)
    }

    fn controller(&mut self, controller: &str, name: &str) -> Option<Controller> {
        for (version, parent) in parent_directories(controller) {
            let path = parent.join(name);
            if version == CgroupVersion::V2 {
                // Fails if already enabled or not permitted; the check below decides.
                let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
            }
            if fs::create_dir(&path).is_err() && !path.is_dir() {
                continue;
            }
            let _ = fs::write(path.join("cgroup.subtree_control"), format!("+{controller}"));
            let limit = if controller == "memory" { version.memory_limit_file() } else { "pids.max" };
            let usable = path.join(limit).is_file() && path.join("cgroup.procs").is_file();
            let opened = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            match opened {
                Ok(directory) if usable => {
                    self.created.push(path);
                    return Some(Controller { version, directory });
                }
                _ => drop(fs::remove_dir(&path)),
            }
        }
        None
    }

    /// Limits this process, and therefore all attempts together, to leave the host some memory. Returns the limit.
    pub fn limit_total(&self) -> io::Result<u64> {
        let controller = self.memory.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // In version 2 only leaf groups may contain processes.
        if controller.version == CgroupVersion::V2 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let total = total_memory().ok_or(io::ErrorKind::Unsupported)?;
        let limit = total.saturating_sub((total / 20).max(RESERVE_BYTES_MIN)).max(RESERVE_BYTES_MIN);
        let directory = controller.directory.as_fd();
        write_at(directory, controller.version.memory_limit_file(), &limit.to_string())?;
        write_at(directory, "cgroup.procs", "0")?;
        Ok(limit)
    }

    /// Sets the limits of a slot's groups and returns the groups to join. Groups are used only where nothing else
    /// works: joining one takes the kernel about 12 ms, many times the rest of a start. In a sandbox, RLIMIT_NPROC in
    /// the attempt's own user namespace limits the number of processes exactly.
    pub fn prepare(&mut self, slot: usize, launch: &Launch) -> io::Result<Vec<BorrowedFd<'_>>> {
        let bounds = &launch.bounds;
        let processes_max = bounds.processes.filter(|_| launch.profile == Profile::None);
        while self.slots.len() <= slot {
            self.slots.push(SlotGroups::default());
        }
        let groups = &mut self.slots[slot];
        if let (Some(limit), Some(controller)) = (bounds.memory_bytes, &self.memory) {
            let group = open_group(&mut groups.memory, controller, slot)?;
            if group.limit != Some(limit) {
                limit_memory(controller.version, group.directory.as_fd(), limit)?;
                group.limit = Some(limit);
            }
        }
        if let (Some(limit), Some(controller)) = (processes_max, &self.processes) {
            let group = open_group(&mut groups.processes, controller, slot)?;
            if group.limit != Some(limit) {
                write_at(group.directory.as_fd(), "pids.max", &limit.to_string())?;
                group.limit = Some(limit);
            }
        }
        let groups = &self.slots[slot];
        let memory = groups.memory.as_ref().filter(|_| bounds.memory_bytes.is_some());
        let processes = groups.processes.as_ref().filter(|_| processes_max.is_some());
        Ok([memory, processes].into_iter().flatten().map(|group| group.members.as_fd()).collect())
    }

    /// OOM kills so far in a slot's group.
    pub fn memory_kills(&self, slot: usize) -> u64 {
        let read = || {
            let controller = self.memory.as_ref()?;
            let group = self.slots.get(slot)?.memory.as_ref()?;
            let text = read_at(group.directory.as_fd(), controller.version.oom_counter_file()).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
        };
        read().unwrap_or(0)
    }

    /// Removes the created groups. Groups with members stay.
    pub fn remove(&self) {
        for controller in [&self.memory, &self.processes].into_iter().flatten() {
            for slot in 0..self.slots.len() {
                let _ = rustix::fs::unlinkat(&controller.directory, slot_name(slot), AtFlags::REMOVEDIR);
            }
        }
        for path in &self.created {
            let _ = rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR);
        }
    }
}

fn slot_name(slot: usize) -> String {
    format!("slot-{slot}")
}

fn open_group<'a>(group: &'a mut Option<Group>, controller: &Controller, slot: usize) -> io::Result<&'a mut Group> {
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

fn limit_memory(version: CgroupVersion, group: BorrowedFd<'_>, limit: u64) -> io::Result<()> {
    let (swap, counts_both) = version.swap_limit_file();
    // Version 1 requires the memory limit to stay below the limit of memory and swap: lift the latter first.
    if counts_both {
        let _ = write_at(group, swap, "-1");
    }
    write_at(group, version.memory_limit_file(), &limit.to_string())?;
    // The file is often missing on hosts without swap.
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

fn total_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Directories in which groups with a controller may be created, best first.
fn parent_directories(controller: &str) -> Vec<(CgroupVersion, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    candidates(&mounts, &own, controller)
}

fn candidates(mounts: &str, own: &str, controller: &str) -> Vec<(CgroupVersion, PathBuf)> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((mount, kind)) = line.split_once(" - ") else { continue };
        let (mount, kind): (Vec<&str>, Vec<&str>) = (mount.split(' ').collect(), kind.split(' ').collect());
        let ([_, _, _, root, point, ..], [kind, _, options, ..]) = (&mount[..], &kind[..]) else { continue };
        let version = match *kind {
            "cgroup" if options.split(',').any(|option| option == controller) => CgroupVersion::V1,
            "cgroup2" => CgroupVersion::V2,
            _ => continue,
        };
        let member = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let matches = match version {
                CgroupVersion::V1 => controllers.split(',').any(|name| name == controller),
                CgroupVersion::V2 => controllers.is_empty(),
            };
            matches.then_some(path)
        });
        let point = Path::new(point);
        if let Some(below) = member.and_then(|path| Path::new(path).strip_prefix(root).ok()) {
            found.push((version, point.join(below)));
        }
        if version == CgroupVersion::V2 {
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
    fn groups_are_created_below_the_own_group() {
        let own = "8:pids:/docker/1/x\n4:memory:/a/b\n0::/c\n";
        let memory = candidates(MOUNTS, own, "memory");
        assert_eq!(memory[0], (CgroupVersion::V1, PathBuf::from("/sys/fs/cgroup/memory/a/b")));
        assert_eq!(memory[1], (CgroupVersion::V2, PathBuf::from("/sys/fs/cgroup/unified/c")));
        assert_eq!(memory[2], (CgroupVersion::V2, PathBuf::from("/sys/fs/cgroup/unified")));
        let pids = candidates(MOUNTS, own, "pids");
        assert!(pids.contains(&(CgroupVersion::V1, PathBuf::from("/sys/fs/cgroup/pids/x"))));
    }

    proptest::proptest! {
        #[test]
        fn parsing_arbitrary_kernel_text_does_not_panic(mounts in ".{0,200}", own in ".{0,100}") {
            candidates(&mounts, &own, "memory");
        }
    }
}
