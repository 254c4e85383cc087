//! Processes that an earlier command started: recorded, found again, signalled.
//!
//! A pid alone does not identify a process: it is used again. A record has the start time and the boot as well, and the
//! process must have the data directory of its service on its command line.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Time for a new process to have its command line.
const COMMAND_LINE_TIMEOUT: Duration = Duration::from_secs(5);

/// Identity of a process: the three together are never used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    pid: i32,
    /// In clock ticks since the machine started.
    start_time: u64,
    boot_id: String,
}

impl ProcessRecord {
    /// The running process with this pid.
    pub fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let stat = Stat::of(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid, start_time: stat.start_time, boot_id: boot_id()? })
    }

    /// A child that was just started with this data directory. The kernel shows its command line a moment later.
    pub fn of_new(child: &mut Child, data_dir: &Path) -> io::Result<Self> {
        let record = Self::of(child.id())?;
        let deadline = Instant::now() + COMMAND_LINE_TIMEOUT;
        while Process::find(&record, data_dir).is_none() && child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(io::Error::other("the kernel does not show its command line"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(record)
    }

    /// `None`: there is no record, or it cannot be read.
    pub fn read(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Self {
            pid: field("pid")?.parse().ok()?,
            start_time: field("start_time")?.parse().ok()?,
            boot_id: field("boot_id")?.to_owned(),
        })
    }

    /// Replaces the record in one step.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let unfinished = file.with_extension("tmp");
        let Self { pid, start_time, boot_id } = self;
        fs::write(&unfinished, format!("pid {pid}\nstart_time {start_time}\nboot_id {boot_id}\n"))?;
        fs::rename(unfinished, file)
    }
}

/// A verified process. Signals reach this process and no other, also after its end.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    start_time: u64,
    handle: OwnedFd,
}

impl Process {
    /// The recorded process, if it still runs with this data directory.
    pub fn find(record: &ProcessRecord, data_dir: &Path) -> Option<Self> {
        if boot_id().ok()? != record.boot_id {
            return None;
        }
        let process = Self::open(record.pid)?;
        let is_same = process.start_time == record.start_time
            && data_dir_of(&process.arguments()).is_some_and(|found| is_same_directory(Path::new(found), data_dir));
        is_same.then_some(process)
    }

    /// The process with this pid.
    pub fn open(pid: i32) -> Option<Self> {
        // Opened before it is looked at: if what is looked at still runs, the handle is of the same process.
        let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let stat = Stat::of(pid).filter(|stat| stat.runs)?;
        Some(Self { pid, start_time: stat.start_time, handle })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Empty once the process has ended.
    pub fn arguments(&self) -> Vec<OsString> {
        arguments(self.pid)
    }

    pub fn is_running(&self) -> bool {
        let mut watched = [PollFd::new(&self.handle, PollFlags::IN)];
        // Readable means ended, also while its parent has not reaped it.
        !matches!(poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }

    /// No error if it has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.handle, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub fn uptime(&self) -> Option<Duration> {
        let since_boot = fs::read_to_string("/proc/uptime").ok()?;
        let since_boot: f64 = since_boot.split(' ').next()?.parse().ok()?;
        let started = self.start_time as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some(Duration::from_secs_f64((since_boot - started).max(0.0)))
    }
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
pub struct Stat {
    /// False for a process that has ended and was not reaped.
    pub runs: bool,
    pub group: i32,
    pub start_time: u64,
}

impl Stat {
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name of the program is in parentheses and may contain spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        Some(Self {
            runs: !matches!(*fields.first()?, "Z" | "X" | "x"),
            group: fields.get(2)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Command line of a process. Empty if it has ended.
pub fn arguments(pid: i32) -> Vec<OsString> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(|argument| OsString::from_vec(argument.to_vec())).collect()
}

fn data_dir_of(arguments: &[OsString]) -> Option<&OsStr> {
    let at = arguments.iter().position(|argument| argument.as_bytes() == b"--data-dir")?;
    arguments.get(at + 1).map(OsString::as_os_str)
}

/// Whether two paths lead to the same existing directory.
pub fn is_same_directory(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A shell that waits for its input, with the arguments of a node.
    fn waiting(data_dir: &Path) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "read line", "outlast", "join", "--data-dir"]).arg(data_dir);
        command.stdin(Stdio::piped()).spawn().unwrap()
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_recorded_process_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = waiting(directory.path());
        let file = directory.path().join("process");
        ProcessRecord::of_new(&mut child, directory.path()).unwrap().write(&file).unwrap();
        let record = ProcessRecord::read(&file).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        let process = Process::find(&record, &link).unwrap();
        assert_eq!(process.pid(), child.id() as i32);
        assert!(process.is_running() && process.uptime().is_some_and(|uptime| uptime < Duration::from_secs(60)));
        end(child);
        assert!(!process.is_running());
        process.signal(Signal::TERM).unwrap();
    }

    // FEATURES: B7
    #[test]
    fn a_pid_that_was_used_again_is_another_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = waiting(directory.path());
        let record = ProcessRecord::of_new(&mut child, directory.path()).unwrap();
        let found = |record: &ProcessRecord, data_dir: &Path| Process::find(record, data_dir).is_some();
        assert!(found(&record, directory.path()));
        let earlier = ProcessRecord { start_time: record.start_time - 1, ..record.clone() };
        assert!(!found(&earlier, directory.path()), "it was started at another time");
        let other_boot = ProcessRecord { boot_id: "0".to_owned(), ..record.clone() };
        assert!(!found(&other_boot, directory.path()), "the machine was started again");
        assert!(!found(&record, tempfile::tempdir().unwrap().path()), "it has another data directory");
        let own = ProcessRecord::of(std::process::id()).unwrap();
        assert!(!found(&own, directory.path()), "it has no data directory");
        end(child);
        assert!(!found(&record, directory.path()), "it has ended");
    }

    #[test]
    fn a_process_that_was_not_reaped_does_not_run() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = waiting(directory.path());
        let record = ProcessRecord::of_new(&mut child, directory.path()).unwrap();
        let process = Process::find(&record, directory.path()).unwrap();
        child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while process.is_running() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Process::find(&record, directory.path()).is_none());
        child.wait().unwrap();
    }

    #[test]
    fn damaged_records_are_like_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("process");
        assert_eq!(ProcessRecord::read(&file), None);
        for text in ["", "pid 1\n", "pid x\nstart_time 1\nboot_id y\n", "pid 1\nstart_time -1\nboot_id y\n"] {
            fs::write(&file, text).unwrap();
            assert_eq!(ProcessRecord::read(&file), None, "{text}");
        }
    }

    #[test]
    fn the_name_of_a_program_may_contain_anything() {
        let rest = "S 1 77 5 0 -1 4194304 1 1 0 0 1 4 0 0 20 0 8 0 386638 1";
        let found = Stat::parse(&format!("877 (a) b (c) {rest}"));
        assert_eq!(found, Some(Stat { runs: true, group: 77, start_time: 386_638 }));
        assert_eq!(Stat::parse("877 (sh) Z 1"), None);
    }
}
