//! Root file system of sandboxed programs: the host's programs and libraries, read-only, and little else.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::protocol::Launch;
use crate::sys;

/// Directories of programs and libraries; on some hosts symbolic links.
const SYSTEM: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix"];
/// Entries of the host's /etc that programs need and that contain no secrets.
const HOST_SETTINGS: [&str; 8] = [
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
/// Generated files in /etc.
const GENERATED_SETTINGS: [(&str, &str); 4] = [
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/false\njob:x:1000:1000:job:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    ),
    ("group", "root:x:0:\njob:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost job\n::1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
];

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;

/// Failed setup step and its error.
pub type StepError = (&'static str, io::Error);

/// Adds the setup step to an error.
pub trait StepContext<T> {
    fn during(self, step: &'static str) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> StepContext<T> for Result<T, E> {
    fn during(self, step: &'static str) -> Result<T, StepError> {
        self.map_err(|error| (step, error.into()))
    }
}

/// Directories of the node that attempts use.
#[derive(Debug, Clone)]
pub struct Directories {
    /// Empty directory used as a mount point; nothing is left in it.
    pub base: std::path::PathBuf,
    pub scratch: std::path::PathBuf,
    pub workers: std::path::PathBuf,
}

/// Mount points of the node's directories during setup. Each attempt's own /tmp covers them, which is cheaper than
/// unmounting them; a process without capabilities cannot see what is below a mount.
pub const SCRATCH: &str = "/tmp/scratch";
const WORKERS: &str = "/tmp/workers";

/// Builds the root file system of attempts and makes it the root of this process. It differs from a program's view only
/// in `/tmp`, which holds the node's directories, and `/proc`.
pub fn build(directories: &Directories) -> Result<(), StepError> {
    sys::mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None).during("make mounts private")?;
    let base = &directories.base;
    sys::mount(Some(c"tmpfs"), &c_path(base), Some(c"tmpfs"), libc::MS_NOSUID, Some(c"mode=0755,size=16m"))
        .during("mount a tmpfs")?;
    populate(base)?;
    let below = |path: &str| base.join(path.trim_start_matches('/'));
    let (scratch, workers) = (below(SCRATCH), below(WORKERS));
    for directory in [&scratch, &workers] {
        fs::create_dir(directory).during("create directories")?;
    }
    sys::restrict_mount(&c_path(base), READ_ONLY).during("make the root read-only")?;
    sys::mount(Some(c"proc"), &c_path(&below("proc")), Some(c"proc"), 0, None).during("mount /proc")?;
    bind(&directories.scratch, &scratch).during("bind the scratch directory")?;
    sys::restrict_mount(&c_path(&scratch), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
        .during("restrict the scratch directory")?;
    bind(&directories.workers, &workers).during("bind the workers")?;
    sys::restrict_mount(&c_path(&workers), READ_ONLY | libc::MOUNT_ATTR_NODEV).during("make the workers read-only")?;
    std::env::set_current_dir(base).during("enter the new root")?;
    swap_root().during("switch to the new root")
}

/// Makes the current directory the root and unmounts the old one.
fn swap_root() -> io::Result<()> {
    sys::pivot_root(c".", c".")?;
    sys::unmount_lazily(c".")?;
    std::env::set_current_dir("/")
}

fn populate(root: &Path) -> Result<(), StepError> {
    for name in SYSTEM {
        let host = Path::new("/").join(name);
        let target = root.join(name);
        match fs::symlink_metadata(&host) {
            Ok(found) if found.is_symlink() => {
                let destination = fs::read_link(&host).during("read a link in the host's root")?;
                symlink(destination, target).during("create a link")?;
            }
            Ok(found) if found.is_dir() => {
                fs::create_dir(&target).during("create directories")?;
                bind(&host, &target).during("bind the host's programs")?;
            }
            Ok(_) | Err(_) => {}
        }
    }
    for name in ["dev", "etc", "etc/ssl", "proc", "run", "tmp", "var", "job", "job/inputs", "job/worker"] {
        fs::DirBuilder::new().mode(0o755).create(root.join(name)).during("create directories")?;
    }
    for (link, target) in [
        ("var/tmp", "/tmp"),
        ("dev/shm", "/tmp"),
        // For attempts without a directory of their own; otherwise that is mounted over /job.
        ("job/outputs", "/tmp/outputs"),
        ("dev/fd", "/proc/self/fd"),
        ("dev/stdin", "/proc/self/fd/0"),
        ("dev/stdout", "/proc/self/fd/1"),
        ("dev/stderr", "/proc/self/fd/2"),
        ("etc/mtab", "/proc/mounts"),
    ] {
        symlink(target, root.join(link)).during("create a link")?;
    }
    for (name, text) in GENERATED_SETTINGS {
        fs::write(root.join("etc").join(name), text).during("write /etc files")?;
    }
    for name in HOST_SETTINGS {
        bind_setting(name, root).during("bind the host's /etc entries")?;
    }
    for (name, major, minor) in DEVICES {
        create_device(&root.join("dev").join(name), name, major, minor).during("create devices")?;
    }
    Ok(())
}

fn bind_setting(name: &str, root: &Path) -> io::Result<()> {
    // May be a link out of /etc, for example to /run: bind its target.
    let Ok(host) = fs::canonicalize(Path::new("/etc").join(name)) else { return Ok(()) };
    let target = root.join("etc").join(name);
    if host.is_dir() {
        fs::create_dir_all(&target)?;
        return bind(&host, &target);
    }
    if host.is_file() {
        fs::write(&target, "")?;
        return bind(&host, &target);
    }
    Ok(())
}

/// Creates a device node, or binds the host's where creating one is not permitted.
fn create_device(target: &Path, name: &str, major: u32, minor: u32) -> io::Result<()> {
    if mknodat(CWD, target, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor)).is_ok() {
        // Independent of the umask.
        return fs::set_permissions(target, fs::Permissions::from_mode(0o666));
    }
    fs::write(target, "")?;
    bind(&Path::new("/dev").join(name), target)
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    sys::mount(Some(&c_path(from)), &c_path(to), None, libc::MS_BIND | libc::MS_REC, None)
}

/// Paths come from the node itself and contain no NUL byte.
fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// Adds the attempt's own mounts to the root of [`build`], in the attempt's mount namespace.
pub fn enter(launch: &Launch, owner: u32) -> Result<(), StepError> {
    // First: the next mount covers the scratch directory in /tmp.
    if let Some(name) = &launch.scratch {
        mount_scratch(name, launch.worker.as_deref())?;
    }
    let size = launch.bounds.tmp_bytes.unwrap_or(TMP_BYTES_DEFAULT);
    let options = CString::new(format!("mode=1777,size={size},nr_inodes={TMP_FILES_MAX}")).unwrap_or_default();
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(Some(c"tmpfs"), c"/tmp", Some(c"tmpfs"), flags, Some(&options)).during("mount /tmp")?;
    sys::mount(Some(c"proc"), c"/proc", Some(c"proc"), flags | libc::MS_NOEXEC, None).during("mount /proc")?;
    if launch.scratch.is_none() {
        fs::create_dir("/tmp/outputs").during("create directories")?;
        chown(c"/tmp/outputs", owner).during("change the owner of the outputs")?;
    }
    std::env::set_current_dir("/job").during("enter the job's directory")
}

/// Size of a private /tmp without a limit of its own.
pub const TMP_BYTES_DEFAULT: u64 = 1 << 30;
/// Files in a private /tmp.
const TMP_FILES_MAX: u64 = 1_000_000;

fn mount_scratch(name: &str, worker: Option<&str>) -> Result<(), StepError> {
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
