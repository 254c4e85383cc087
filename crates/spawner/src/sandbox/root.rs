//! The file system that a sandboxed program sees: the host's programs and libraries, read-only, and little else.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::protocol::Launch;
use crate::sys;

/// Directories of programs and libraries; some are links into others.
const SYSTEM: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix"];
/// What of the host's settings programs need and nobody minds being read.
const SETTINGS: [&str; 8] = [
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "resolv.conf",
    "ssl/certs",
];
const DEVICES: [(&str, u32, u32); 5] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9)];
const OWN_SETTINGS: [(&str, &str); 4] = [
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/false\njob:x:1000:1000:job:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    ),
    ("group", "root:x:0:\njob:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost job\n::1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
];

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;

/// A step that failed, by name.
pub type Failed = (&'static str, io::Error);

/// Says which step an error belongs to.
pub trait During<T> {
    fn during(self, step: &'static str) -> Result<T, Failed>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, step: &'static str) -> Result<T, Failed> {
        self.map_err(|error| (step, error.into()))
    }
}

/// The directories of the node that attempts get something of.
#[derive(Debug, Clone)]
pub struct Places {
    /// An empty directory to build everything on; nothing is left in it.
    pub base: std::path::PathBuf,
    pub scratch: std::path::PathBuf,
    pub workers: std::path::PathBuf,
}

/// Where the node's directories are while attempts are made. Each attempt's own /tmp covers them, which costs less than to
/// unmount them, and nothing without capabilities can look under a mount.
pub const SCRATCH: &str = "/tmp/scratch";
const WORKERS: &str = "/tmp/workers";

/// Builds the root of all attempts and makes it this process's own: afterwards `/` is what a program will see, but for
/// `/tmp`, which holds the node's directories, and `/proc`.
pub fn build(places: &Places) -> Result<(), Failed> {
    sys::mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None).during("keep mounts private")?;
    let base = &places.base;
    sys::mount(Some(c"tmpfs"), &c_path(base), Some(c"tmpfs"), libc::MS_NOSUID, Some(c"mode=0755,size=16m"))
        .during("mount a tmpfs")?;
    furnish(base)?;
    let below = |path: &str| base.join(path.trim_start_matches('/'));
    let (scratch, workers) = (below(SCRATCH), below(WORKERS));
    for directory in [&scratch, &workers] {
        fs::create_dir(directory).during("make directories")?;
    }
    sys::restrict_mount(&c_path(base), READ_ONLY).during("make the root read-only")?;
    sys::mount(Some(c"proc"), &c_path(&below("proc")), Some(c"proc"), 0, None).during("mount /proc")?;
    bind(&places.scratch, &scratch).during("bind the scratch directory")?;
    sys::restrict_mount(&c_path(&scratch), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
        .during("restrict the scratch directory")?;
    bind(&places.workers, &workers).during("bind the workers")?;
    sys::restrict_mount(&c_path(&workers), READ_ONLY | libc::MOUNT_ATTR_NODEV).during("make the workers read-only")?;
    std::env::set_current_dir(base).during("enter the base")?;
    swap_root().during("leave the host's root")
}

/// Makes the current directory the root and lets go of the old one.
fn swap_root() -> io::Result<()> {
    sys::pivot_root(c".", c".")?;
    sys::unmount_lazily(c".")?;
    std::env::set_current_dir("/")
}

fn furnish(root: &Path) -> Result<(), Failed> {
    for name in SYSTEM {
        let host = Path::new("/").join(name);
        let here = root.join(name);
        match fs::symlink_metadata(&host) {
            Ok(found) if found.is_symlink() => {
                let target = fs::read_link(&host).during("read a link of the host's root")?;
                symlink(target, here).during("make a link")?;
            }
            Ok(found) if found.is_dir() => {
                fs::create_dir(&here).during("make directories")?;
                bind(&host, &here).during("bind the host's programs")?;
            }
            Ok(_) | Err(_) => {}
        }
    }
    for name in ["dev", "etc", "etc/ssl", "proc", "run", "tmp", "var", "job", "job/inputs", "job/worker"] {
        fs::DirBuilder::new().mode(0o755).create(root.join(name)).during("make directories")?;
    }
    for (link, target) in [
        ("var/tmp", "/tmp"),
        ("dev/shm", "/tmp"),
        // Where an attempt has no directory of its own; else that one is mounted here.
        ("job/outputs", "/tmp/outputs"),
        ("dev/fd", "/proc/self/fd"),
        ("dev/stdin", "/proc/self/fd/0"),
        ("dev/stdout", "/proc/self/fd/1"),
        ("dev/stderr", "/proc/self/fd/2"),
        ("etc/mtab", "/proc/mounts"),
    ] {
        symlink(target, root.join(link)).during("make a link")?;
    }
    for (name, text) in OWN_SETTINGS {
        fs::write(root.join("etc").join(name), text).during("write settings")?;
    }
    for name in SETTINGS {
        borrow_setting(name, root).during("bind the host's settings")?;
    }
    for (name, major, minor) in DEVICES {
        device(&root.join("dev").join(name), name, major, minor).during("make devices")?;
    }
    Ok(())
}

fn borrow_setting(name: &str, root: &Path) -> io::Result<()> {
    // The host's may be a link out of /etc, such as to /run; what it leads to is what counts.
    let Ok(host) = fs::canonicalize(Path::new("/etc").join(name)) else { return Ok(()) };
    let here = root.join("etc").join(name);
    if host.is_dir() {
        fs::create_dir_all(&here)?;
        return bind(&host, &here);
    }
    if host.is_file() {
        fs::write(&here, "")?;
        return bind(&host, &here);
    }
    Ok(())
}

/// Who may not make devices borrows the host's.
fn device(here: &Path, name: &str, major: u32, minor: u32) -> io::Result<()> {
    if mknodat(CWD, here, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor)).is_ok() {
        // Independent of the mask for new files.
        return fs::set_permissions(here, fs::Permissions::from_mode(0o666));
    }
    fs::write(here, "")?;
    bind(&Path::new("/dev").join(name), here)
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    sys::mount(Some(&c_path(from)), &c_path(to), None, libc::MS_BIND | libc::MS_REC, None)
}

/// Paths come from the node itself and contain no zero byte.
fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// Completes the root that [`build`] made with what is this attempt's alone, in its own mount namespace.
pub fn enter(launch: &Launch, owner: u32) -> Result<(), Failed> {
    // First: /tmp is about to be covered.
    if let Some(name) = &launch.scratch {
        mount_scratch(name, launch.worker.as_deref())?;
    }
    let size = launch.bounds.tmp_bytes.unwrap_or(TMP_BYTES_DEFAULT);
    let options = CString::new(format!("mode=1777,size={size},nr_inodes={TMP_FILES_MAX}")).unwrap_or_default();
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(Some(c"tmpfs"), c"/tmp", Some(c"tmpfs"), flags, Some(&options)).during("mount /tmp")?;
    sys::mount(Some(c"proc"), c"/proc", Some(c"proc"), flags | libc::MS_NOEXEC, None).during("mount /proc")?;
    if launch.scratch.is_none() {
        fs::create_dir("/tmp/outputs").during("make directories")?;
        chown(c"/tmp/outputs", owner).during("give away the outputs")?;
    }
    std::env::set_current_dir("/job").during("enter the job's directory")
}

/// The size of a private /tmp unless the node says otherwise.
pub const TMP_BYTES_DEFAULT: u64 = 1 << 30;
/// How many files fit into a private /tmp.
const TMP_FILES_MAX: u64 = 1_000_000;

fn mount_scratch(name: &str, worker: Option<&str>) -> Result<(), Failed> {
    let from = Path::new(SCRATCH).join(name);
    let job = Path::new("/job");
    bind(&from, job).during("bind the job's directory")?;
    sys::restrict_mount(c"/job", READ_ONLY | libc::MOUNT_ATTR_NODEV).during("make inputs read-only")?;
    bind(&from.join("outputs"), &job.join("outputs")).during("bind the outputs")?;
    sys::restrict_mount(c"/job/outputs", libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
        .during("restrict the outputs")?;
    if let Some(worker) = worker {
        bind(&Path::new(WORKERS).join(worker), &job.join("worker")).during("bind the worker")?;
        sys::restrict_mount(c"/job/worker", READ_ONLY | libc::MOUNT_ATTR_NODEV).during("make the worker read-only")?;
    }
    Ok(())
}

fn chown(path: &CStr, owner: u32) -> io::Result<()> {
    let (user, group) = (rustix::fs::Uid::from_raw(owner), rustix::fs::Gid::from_raw(owner));
    Ok(rustix::fs::chown(path, Some(user), Some(group))?)
}
