//! First process of an attempt: sets up the sandbox, starts the program, stores its output and kills leftover
//! processes.
//!
//! In a sandbox it is PID 1 of its own namespace: signals work for the program as usual, and no process of the attempt
//! can outlive it. It dies with the spawner.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Uid};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::log::{self, PipeRead, Stream, Writer};
use crate::process_tree;
use crate::program::{self, Program};
use crate::protocol::{AttemptKey, Exit, ExitStatus, Launch, Limit, Profile};
use crate::report::Report;
use crate::sandbox::root::{self, StepContext, StepError};
use crate::sandbox::{Mode, Sandbox};
use crate::sys::{self, Waited};

/// Interval between checks of the limits that the kernel does not enforce.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time to wait for the rest of the output if a process that could not be killed holds the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Chunks stored from one stream before the other is served: more than a pipe holds.
const CHUNKS_PER_STREAM: usize = 32;
/// Files in `outputs/`; more exceed the output limit.
const OUTPUT_FILES_MAX: u64 = 100_000;
/// With less free disk space than this, attempts with a directory are killed.
pub const DISK_RESERVE_BYTES: u64 = 64 << 20;

const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
const CAP_KILL: u64 = 1 << 5;

/// Everything an init needs, in memory inherited from the spawner.
pub struct InitContext<'a> {
    pub slot: u32,
    pub key: AttemptKey,
    pub launch: &'a Launch,
    pub log: OwnedFd,
    pub input: OwnedFd,
    pub report: BorrowedFd<'a>,
    pub sandbox: &'a Sandbox,
    /// User id on the host that the program runs as.
    pub owner: u32,
    /// User and group id of the spawner: inside a new user namespace they cannot be queried.
    pub user: (u32, u32),
    /// `cgroup.procs` files of the control groups to join.
    pub groups: Vec<BorrowedFd<'a>>,
}

/// Runs the attempt and reports its exit.
pub fn run(mut context: InitContext<'_>) -> ! {
    let report = context.report;
    let (slot, key) = (context.slot, context.key);
    let exit = match prepare(&mut context) {
        Ok(program) => supervise(context, program),
        Err((step, error)) => failed_exit(ExitStatus::SetupFailed { step: step.to_owned(), errno: errno(&error) }),
    };
    // Fails only if the spawner has died.
    let _ = Report { slot, key, exit: Some(exit) }.send(report);
    sys::exit(0)
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

fn failed_exit(status: ExitStatus) -> Exit {
    Exit::without_usage(status, now_ms())
}

/// Program ready to start, and the read ends of its output.
struct Ready {
    program: Program,
    output: [OwnedFd; 2],
    signals: OwnedFd,
}

fn prepare(context: &mut InitContext<'_>) -> Result<Ready, StepError> {
    sys::die_with_parent().during("set the parent-death signal")?;
    sys::name_process(c"outlast-init");
    close_inherited(context);
    let signals = sys::signals(&[sys::STOP, libc::SIGCHLD]).during("open a signalfd")?;
    let launch = context.launch;
    let sandboxed = launch.profile != Profile::None;
    if sandboxed {
        if let Mode::Unprivileged(directories) = &context.sandbox.mode {
            // An unprivileged user has capabilities in its own user namespace and builds the root there.
            program::map_to_self(context.user.0, context.user.1).during("map the user")?;
            root::build(directories)?;
        }
        context.sandbox.enter_network(launch)?;
        sys::set_host_name(b"job").during("set the host name")?;
        root::enter(launch, context.owner)?;
    } else {
        sys::adopt_orphans().during("become a subreaper")?;
        context.sandbox.return_to_host().during("return to the host's namespaces")?;
        let scratch = context.sandbox.directories.scratch.join(launch.scratch.as_deref().unwrap_or_default());
        std::env::set_current_dir(scratch).during("enter the job's directory")?;
    }
    let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC).during("create pipes")?;
    let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC).during("create pipes")?;
    for pipe in [&stdout, &stderr] {
        rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::NONBLOCK).during("create pipes")?;
        if sandboxed && matches!(context.sandbox.mode, Mode::Privileged) {
            // Otherwise the program could not open /dev/stdout.
            let (user, group) = (Uid::from_raw(context.owner), Gid::from_raw(context.owner));
            rustix::fs::fchown(pipe, Some(user), Some(group)).during("change the owner of the pipes")?;
        }
    }
    let program = Program::new(context, [stdout_end, stderr_end], sandboxed)?;
    Ok(Ready { program, output: [stdout, stderr], signals })
}

/// Closes all descriptors of the spawner that this attempt does not need.
fn close_inherited(context: &InitContext<'_>) {
    let mut own: Vec<i32> = vec![0, 1, 2];
    own.extend([context.log.as_raw_fd(), context.input.as_raw_fd(), context.report.as_raw_fd()]);
    own.extend(context.groups.iter().map(AsRawFd::as_raw_fd));
    own.extend(context.sandbox.descriptors());
    sys::close_all_but(&mut own);
}

/// State of a running attempt.
struct Supervision {
    deadline: Option<Instant>,
    stopped: bool,
    exceeded: Option<Limit>,
    memory_peak: u64,
    log_errno: Option<i32>,
}

fn supervise(context: InitContext<'_>, ready: Ready) -> Exit {
    let Ready { mut program, output, signals } = ready;
    let pid = match program.start() {
        Ok(pid) => pid,
        Err(status) => return failed_exit(status),
    };
    // Fails only if the spawner has died.
    let _ = Report { slot: context.slot, key: context.key, exit: None }.send(context.report);
    drop(program);
    let sandboxed = context.launch.profile != Profile::None;
    if sandboxed {
        // Supervision needs few capabilities. Failing to drop the others must not fail the job.
        let _ = sys::limit_capabilities(CAP_KILL | CAP_DAC_READ_SEARCH);
    }
    let bounds = &context.launch.bounds;
    let mut writer = Writer::new(context.log, bounds.log_head_bytes, bounds.log_tail_bytes);
    let mut supervision =
        Supervision { deadline: None, stopped: false, exceeded: None, memory_peak: 0, log_errno: None };
    let mut open = [true, true];
    let began = Instant::now();
    let mut next_check = began + CHECK_INTERVAL;
    let mut wait_status = None;
    while wait_status.is_none() {
        let now = Instant::now();
        if now >= next_check {
            supervision.check_limits(context.launch, sandboxed);
            next_check = now + CHECK_INTERVAL;
        }
        if supervision.deadline.is_some_and(|deadline| now >= deadline) {
            signal_all(sandboxed, libc::SIGKILL);
            // All killed; only reaping remains.
            supervision.deadline = Some(now + CHECK_INTERVAL);
        }
        let wake = supervision.deadline.map_or(next_check, |deadline| deadline.min(next_check));
        if !wait(&output, open, signals.as_fd(), context.report, wake.saturating_duration_since(now)) {
            // The spawner has died.
            signal_all(sandboxed, libc::SIGKILL);
            sys::exit(1);
        }
        read_output(&mut writer, &output, &mut open, &mut supervision);
        while let Some((signal, grace)) = sys::next_signal(signals.as_fd()) {
            if signal == sys::STOP {
                let deadline = Instant::now() + Duration::from_millis(grace.max(0) as u64);
                // A later stop can shorten the grace period, not extend it.
                supervision.deadline = Some(supervision.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
                if !std::mem::replace(&mut supervision.stopped, true) {
                    signal_all(sandboxed, libc::SIGTERM);
                }
            }
        }
        while let Waited::Ended { pid: ended, status } = sys::reap(false) {
            wait_status = if ended == pid { Some(status) } else { wait_status };
        }
    }
    kill_all(sandboxed);
    drain(&mut writer, &output, &mut open, &mut supervision);
    exit_of(wait_status.unwrap_or_default(), &supervision)
}

/// Waits for output, a signal or the timeout; `false` once the spawner has died.
fn wait(
    output: &[OwnedFd; 2],
    open: [bool; 2],
    signals: BorrowedFd<'_>,
    report: BorrowedFd<'_>,
    timeout: Duration,
) -> bool {
    let mut watched = vec![PollFd::from_borrowed_fd(signals, PollFlags::IN)];
    watched.push(PollFd::from_borrowed_fd(report, PollFlags::empty()));
    for (pipe, open) in output.iter().zip(open) {
        if open {
            watched.push(PollFd::new(pipe, PollFlags::IN));
        }
    }
    // One millisecond late avoids waking up repeatedly just before the deadline.
    let timeout = timeout + Duration::from_millis(1);
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    let _ = poll(&mut watched, Some(&timeout));
    !watched[1].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Stores pending output of both streams, stdout completely before stderr: a full stdout pipe is older than the last
/// lines on stderr and must not push them out of the stored tail. Returns whether there was any.
fn read_output(
    writer: &mut Writer,
    output: &[OwnedFd; 2],
    open: &mut [bool; 2],
    supervision: &mut Supervision,
) -> bool {
    let mut any = false;
    for stream in Stream::ALL {
        let index = stream.index();
        for _ in 0..CHUNKS_PER_STREAM {
            if !open[index] {
                break;
            }
            let read = match supervision.log_errno {
                None => writer.append_from(stream, output[index].as_fd(), now_ms()).unwrap_or_else(|error| {
                    supervision.log_errno = Some(errno(&error));
                    PipeRead::Data
                }),
                // The program continues without its output being stored.
                Some(_) => log::discard(output[index].as_fd()),
            };
            open[index] = read != PipeRead::Eof;
            if read != PipeRead::Data {
                break;
            }
            any = true;
        }
    }
    any
}

/// Stores the remaining output. All writers are dead, except for processes that escaped an unsandboxed attempt.
fn drain(writer: &mut Writer, output: &[OwnedFd; 2], open: &mut [bool; 2], supervision: &mut Supervision) {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    while open.iter().any(|open| *open) && Instant::now() < deadline {
        if !read_output(writer, output, open, supervision) && open.iter().any(|open| *open) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Signals all processes of the attempt except this one.
fn signal_all(sandboxed: bool, signal: i32) {
    if sandboxed {
        return sys::kill(-1, signal);
    }
    for pid in process_tree::descendants(own_pid()) {
        sys::kill(pid, signal);
    }
}

/// Kills and reaps all processes of the attempt.
fn kill_all(sandboxed: bool) {
    loop {
        signal_all(sandboxed, libc::SIGKILL);
        loop {
            match sys::reap(sandboxed) {
                Waited::Ended { .. } => {}
                Waited::NoChildren => return,
                // Without a sandbox, children may fork during the scan: scan again.
                Waited::NothingYet => break,
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn exit_of(wait_status: i32, supervision: &Supervision) -> Exit {
    let (cpu_us, largest) = sys::children_usage();
    let status = match supervision.exceeded {
        Some(limit) => ExitStatus::OverLimit { limit },
        None if libc::WIFEXITED(wait_status) => ExitStatus::Exited { code: libc::WEXITSTATUS(wait_status) },
        // Sent only by the process's own CPU limit.
        None if libc::WTERMSIG(wait_status) == libc::SIGXCPU => ExitStatus::OverLimit { limit: Limit::Cpu },
        None => ExitStatus::Signalled { signal: libc::WTERMSIG(wait_status) },
    };
    Exit {
        status,
        stopped: supervision.stopped,
        cpu_us,
        memory_peak_bytes: largest.max(supervision.memory_peak),
        ended_at: now_ms(),
        log_errno: supervision.log_errno,
        lease_expired: false,
    }
}

impl Supervision {
    /// Checks the limits on the whole process tree, which the kernel does not sum up.
    fn check_limits(&mut self, launch: &Launch, sandboxed: bool) {
        let used = process_tree::tree_usage(own_pid());
        self.memory_peak = self.memory_peak.max(used.memory_bytes);
        let bounds = &launch.bounds;
        let over = |used: u64, bound: Option<u64>| bound.is_some_and(|bound| used > bound);
        let limit = if over(used.cpu_us / 1000, bounds.cpu_ms) {
            Some(Limit::Cpu)
        } else if over(used.memory_bytes, bounds.memory_bytes) {
            Some(Limit::Memory)
        } else if over(output_bytes(launch), bounds.output_bytes) {
            Some(Limit::Output)
        } else if launch.scratch.is_some() && disk_is_full() {
            Some(Limit::Disk)
        } else {
            None
        };
        if let Some(limit) = limit
            && self.exceeded.is_none()
        {
            self.exceeded = Some(limit);
            signal_all(sandboxed, libc::SIGKILL);
        }
    }
}

/// Whether the outputs' disk is so full that it endangers the node. Needed besides `output_bytes`, which does not see
/// removed files that are still open.
fn disk_is_full() -> bool {
    rustix::fs::statvfs("outputs").is_ok_and(|disk| disk.f_bavail * disk.f_frsize < DISK_RESERVE_BYTES)
}

/// Disk usage of the attempt's outputs.
fn output_bytes(launch: &Launch) -> u64 {
    if launch.bounds.output_bytes.is_none() {
        return 0;
    }
    let mut files = 0;
    let mut pending = vec![std::path::PathBuf::from("outputs")];
    let mut bytes = 0;
    while let Some(directory) = pending.pop() {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // For example, nested deeper than a path can name.
            Err(_) => return u64::MAX,
        };
        for entry in entries.flatten() {
            files += 1;
            if files > OUTPUT_FILES_MAX {
                return u64::MAX;
            }
            // Metadata of the entry itself: links are not followed.
            let Ok(found) = entry.metadata() else { continue };
            match found.is_dir() {
                true => pending.push(entry.path()),
                false => bytes += std::os::unix::fs::MetadataExt::blocks(&found) * 512,
            }
        }
    }
    bytes
}

/// Error number of an I/O error; `EIO` if it has none.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
