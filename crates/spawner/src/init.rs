//! The first process of an attempt: makes its place, starts the program, keeps its output, and ends what it leaves.
//!
//! In a sandbox it is process 1 of its own namespace, so that signals work for the program as usual and nothing of the
//! attempt can outlive it. It dies with the spawner.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Uid};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::log::{self, Pumped, Stream, Writer};
use crate::processes;
use crate::program::{self, Program};
use crate::protocol::{Exit, Key, Launch, Limit, Profile, Verdict};
use crate::report::Report;
use crate::sandbox::root::{self, During, Failed};
use crate::sandbox::{Mode, Sandbox};
use crate::sys::{self, Waited};

/// How often limits are looked after that no kernel enforces.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How long the rest of the output is waited for when something holds it open that could not be ended.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);
/// How many pieces of a stream are kept before it is another's turn: more than a pipe holds.
const PIECES_IN_TURN: usize = 32;
/// How many files in outputs are counted before it is too much.
const OUTPUT_FILES_MAX: u64 = 100_000;
/// With less than this left on the disk, attempts that have outputs are ended.
const DISK_RESERVE_BYTES: u64 = 64 << 20;

const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
const CAP_KILL: u64 = 1 << 5;

/// Everything an init needs, in the memory that it got from the spawner.
pub struct Beginning<'a> {
    pub slot: u32,
    pub key: Key,
    pub launch: &'a Launch,
    pub log: OwnedFd,
    pub input: OwnedFd,
    pub report: BorrowedFd<'a>,
    pub sandbox: &'a Sandbox,
    /// The user of the host that the program runs as.
    pub owner: u32,
    /// User and group of the spawner: inside a new user namespace they cannot be asked for.
    pub user: (u32, u32),
    /// Where a process is written to become a member of a control group.
    pub groups: Vec<BorrowedFd<'a>>,
}

/// Lives the life of an init.
pub fn live(mut beginning: Beginning<'_>) -> ! {
    let report = beginning.report;
    let (slot, key) = (beginning.slot, beginning.key);
    let exit = match prepare(&mut beginning) {
        Ok(program) => attend(beginning, program),
        Err((step, error)) => {
            failed(Verdict::NoPlace { step: step.to_owned(), errno: error.raw_os_error().unwrap_or(libc::EIO) })
        }
    };
    // Without a spawner there is nobody to tell.
    let _ = Report { slot, key, exit }.send(report);
    sys::exit(0)
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

fn failed(verdict: Verdict) -> Exit {
    Exit { verdict, stopped: false, cpu_us: 0, memory_peak_bytes: 0, ended_at: now_ms(), log_errno: None }
}

/// The program, ready to run, and the reading ends of its output.
struct Ready {
    program: Program,
    output: [OwnedFd; 2],
    signals: OwnedFd,
}

fn prepare(beginning: &mut Beginning<'_>) -> Result<Ready, Failed> {
    sys::die_with_parent().during("tie the attempt to its spawner")?;
    sys::name_process(c"outlast-init");
    close_foreign(beginning);
    let signals = sys::signals(&[sys::STOP, libc::SIGCHLD]).during("take signals")?;
    let launch = beginning.launch;
    let sandboxed = launch.profile != Profile::None;
    if sandboxed {
        if let Mode::Apart(places) = &beginning.sandbox.mode {
            // An ordinary user has rights in a user namespace of its own; there it makes what root makes once for all.
            program::map_to_self(beginning.user.0, beginning.user.1).during("map the user")?;
            root::build(places)?;
        }
        beginning.sandbox.enter_network(launch)?;
        sys::set_host_name(b"job").during("name the host")?;
        root::enter(launch, beginning.owner)?;
    } else {
        sys::adopt_orphans().during("keep the processes together")?;
        beginning.sandbox.return_to_host().during("return to the host")?;
        let scratch = beginning.sandbox.places.scratch.join(launch.scratch.as_deref().unwrap_or_default());
        std::env::set_current_dir(scratch).during("enter the job's directory")?;
    }
    let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC).during("make pipes")?;
    let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC).during("make pipes")?;
    for pipe in [&stdout, &stderr] {
        rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::NONBLOCK).during("make pipes")?;
        if sandboxed && matches!(beginning.sandbox.mode, Mode::Prepared) {
            // So that the program may open /dev/stdout.
            let (user, group) = (Uid::from_raw(beginning.owner), Gid::from_raw(beginning.owner));
            rustix::fs::fchown(pipe, Some(user), Some(group)).during("give away the pipes")?;
        }
    }
    let program = Program::new(beginning, [stdout_end, stderr_end], sandboxed)?;
    Ok(Ready { program, output: [stdout, stderr], signals })
}

/// Lets go of everything that the spawner has open and this attempt has nothing to do with.
fn close_foreign(beginning: &Beginning<'_>) {
    let mut own: Vec<i32> = vec![0, 1, 2];
    own.extend([beginning.log.as_raw_fd(), beginning.input.as_raw_fd(), beginning.report.as_raw_fd()]);
    own.extend(beginning.groups.iter().map(AsRawFd::as_raw_fd));
    own.extend(beginning.sandbox.descriptors());
    sys::close_all_but(&mut own);
}

/// What is known of the attempt while it runs.
struct Watch {
    deadline: Option<Instant>,
    stopped: bool,
    over: Option<Limit>,
    memory_peak: u64,
    log_errno: Option<i32>,
}

fn attend(beginning: Beginning<'_>, ready: Ready) -> Exit {
    let Ready { mut program, output, signals } = ready;
    let pid = match program.start() {
        Ok(pid) => pid,
        Err(verdict) => return failed(verdict),
    };
    drop(program);
    let sandboxed = beginning.launch.profile != Profile::None;
    if sandboxed {
        // From here on it only watches. Failing to give up rights is no reason to fail the job.
        let _ = sys::keep_capabilities(CAP_KILL | CAP_DAC_READ_SEARCH);
    }
    let bounds = &beginning.launch.bounds;
    let mut writer = Writer::new(beginning.log, bounds.log_head_bytes, bounds.log_tail_bytes);
    let mut watch = Watch { deadline: None, stopped: false, over: None, memory_peak: 0, log_errno: None };
    let mut open = [true, true];
    let began = Instant::now();
    let mut next_look = began + LOOK_INTERVAL;
    let mut status = None;
    while status.is_none() {
        let now = Instant::now();
        if now >= next_look {
            watch.look(beginning.launch, sandboxed);
            next_look = now + LOOK_INTERVAL;
        }
        if watch.deadline.is_some_and(|deadline| now >= deadline) {
            end_all(sandboxed, libc::SIGKILL);
            // Said once; what is left are the dead to be reaped.
            watch.deadline = Some(now + LOOK_INTERVAL);
        }
        let wake = watch.deadline.map_or(next_look, |deadline| deadline.min(next_look));
        if !wait(&output, open, signals.as_fd(), beginning.report, wake.saturating_duration_since(now)) {
            // The spawner is gone.
            end_all(sandboxed, libc::SIGKILL);
            sys::exit(1);
        }
        pump(&mut writer, &output, &mut open, &mut watch);
        while let Some((signal, grace)) = sys::next_signal(signals.as_fd()) {
            if signal == sys::STOP {
                let deadline = Instant::now() + Duration::from_millis(grace.max(0) as u64);
                // Whoever is in more of a hurry counts; nobody can make it later.
                watch.deadline = Some(watch.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
                if !std::mem::replace(&mut watch.stopped, true) {
                    end_all(sandboxed, libc::SIGTERM);
                }
            }
        }
        while let Waited::Ended { pid: ended, status: how } = sys::reap(false) {
            status = if ended == pid { Some(how) } else { status };
        }
    }
    clear(sandboxed);
    drain(&mut writer, &output, &mut open, &mut watch);
    conclude(status.unwrap_or_default(), &watch)
}

/// Waits for something to happen; `false` when the spawner has gone.
fn wait(
    output: &[OwnedFd; 2],
    open: [bool; 2],
    signals: BorrowedFd<'_>,
    report: BorrowedFd<'_>,
    longest: Duration,
) -> bool {
    let mut watched = vec![PollFd::from_borrowed_fd(signals, PollFlags::IN)];
    watched.push(PollFd::from_borrowed_fd(report, PollFlags::empty()));
    for (pipe, open) in output.iter().zip(open) {
        if open {
            watched.push(PollFd::new(pipe, PollFlags::IN));
        }
    }
    // A little late rather than many times a little early.
    let longest = longest + Duration::from_millis(1);
    let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
    let _ = poll(&mut watched, Some(&longest));
    !watched[1].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// One stream after the other, each as far as it goes: a full pipe of standard output came before the last words on
/// standard error, and must not push them out of what is kept.
fn pump(writer: &mut Writer, output: &[OwnedFd; 2], open: &mut [bool; 2], watch: &mut Watch) -> bool {
    let mut any = false;
    for stream in Stream::ALL {
        let index = stream.index();
        for _ in 0..PIECES_IN_TURN {
            if !open[index] {
                break;
            }
            let pumped = match watch.log_errno {
                None => writer.pump(stream, output[index].as_fd(), now_ms()).unwrap_or_else(|error| {
                    watch.log_errno = Some(errno(&error));
                    Pumped::Some
                }),
                // The program goes on without its output being kept.
                Some(_) => log::discard(output[index].as_fd()),
            };
            open[index] = pumped != Pumped::End;
            if pumped != Pumped::Some {
                break;
            }
            any = true;
        }
    }
    any
}

/// The rest of the output. Everything that could write is dead, except where something got away.
fn drain(writer: &mut Writer, output: &[OwnedFd; 2], open: &mut [bool; 2], watch: &mut Watch) {
    let patience = Instant::now() + OUTPUT_PATIENCE;
    while open.iter().any(|open| *open) && Instant::now() < patience {
        if !pump(writer, output, open, watch) && open.iter().any(|open| *open) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Signals everything of the attempt but this process.
fn end_all(sandboxed: bool, signal: i32) {
    if sandboxed {
        return sys::kill(-1, signal);
    }
    for pid in processes::descendants(own_pid()) {
        sys::kill(pid, signal);
    }
}

/// Nothing of the attempt is left when this returns.
fn clear(sandboxed: bool) {
    loop {
        end_all(sandboxed, libc::SIGKILL);
        loop {
            match sys::reap(sandboxed) {
                Waited::Ended { .. } => {}
                Waited::NoChildren => return,
                // Outside of a sandbox children may fork faster than they are found: look again.
                Waited::NothingYet => break,
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn conclude(status: i32, watch: &Watch) -> Exit {
    let (cpu_us, largest) = sys::used_by_children();
    let verdict = match watch.over {
        Some(limit) => Verdict::OverLimit { limit },
        None if libc::WIFEXITED(status) => Verdict::Exited { code: libc::WEXITSTATUS(status) },
        // Its own limit of processor time is the only thing that sends this.
        None if libc::WTERMSIG(status) == libc::SIGXCPU => Verdict::OverLimit { limit: Limit::Cpu },
        None => Verdict::Signalled { signal: libc::WTERMSIG(status) },
    };
    Exit {
        verdict,
        stopped: watch.stopped,
        cpu_us,
        memory_peak_bytes: largest.max(watch.memory_peak),
        ended_at: now_ms(),
        log_errno: watch.log_errno,
    }
}

impl Watch {
    /// Looks after limits on the whole tree, which no kernel mechanism sums up.
    fn look(&mut self, launch: &Launch, sandboxed: bool) {
        let used = processes::used_by_tree(own_pid());
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
            && self.over.is_none()
        {
            self.over = Some(limit);
            end_all(sandboxed, libc::SIGKILL);
        }
    }
}

/// Whether so little is left on the disk of the outputs that the node itself is in danger: files that were removed and are
/// still open are in no directory.
fn disk_is_full() -> bool {
    rustix::fs::statvfs("outputs").is_ok_and(|disk| disk.f_bavail * disk.f_frsize < DISK_RESERVE_BYTES)
}

/// What the attempt has put into its outputs.
fn output_bytes(launch: &Launch) -> u64 {
    if launch.bounds.output_bytes.is_none() {
        return 0;
    }
    let mut files = 0;
    let mut waiting = vec![std::path::PathBuf::from("outputs")];
    let mut bytes = 0;
    while let Some(directory) = waiting.pop() {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // Nested deeper than can be looked at, for instance.
            Err(_) => return u64::MAX,
        };
        for entry in entries.flatten() {
            files += 1;
            if files > OUTPUT_FILES_MAX {
                return u64::MAX;
            }
            // Of the entry itself, not of what a link leads to.
            let Ok(found) = entry.metadata() else { continue };
            match found.is_dir() {
                true => waiting.push(entry.path()),
                false => bytes += std::os::unix::fs::MetadataExt::blocks(&found) * 512,
            }
        }
    }
    bytes
}

/// An error with the number that the system gave it.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
