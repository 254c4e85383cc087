//! Main loop of the spawner: executes the commands of the current server and stores the exits of attempts until a
//! server has acknowledged them.

mod leases;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::cgroups::Cgroups;
use crate::channel::Channel;
use crate::client::Options;
use crate::init::{self, InitContext, now_ms};
use crate::process_tree;
use crate::protections;
use crate::protocol::{
    AttemptKey, Command, Event, Exit, ExitStatus, Launch, OLDEST_VERSION, Profile, Protections, STARTED_VERSION,
    Sample, VERSION,
};
use crate::report::{self, Report};
use crate::sandbox::{Mode, Sandbox};
use crate::steady_clock;
use crate::sys::{self, Cloned};
use crate::tethers::Tethers;
use leases::Lease;

/// Attempts at once, including those that have ended and are not forgotten.
pub const ATTEMPTS_MAX: usize = 4096;
/// Time for all attempts to end when the spawner shuts down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Duration of one sandbox probe, and number of probes before the sandbox counts as unavailable.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
const PROBES_MAX: usize = 3;

struct Attempt {
    key: AttemptKey,
    slot: usize,
    pid: i32,
    /// Absent once its init is reaped.
    pidfd: Option<OwnedFd>,
    exit: Option<Exit>,
    started: bool,
    /// OOM kills in its control group before it started: slots reuse their group.
    memory_kills: u64,
    forgotten: bool,
    note: Vec<u8>,
    lease: Option<Lease>,
}

pub struct Spawner {
    options: Options,
    listener: OwnedFd,
    server: Option<Channel>,
    /// Protocol version agreed with the server.
    server_version: u32,
    /// Events the server's socket had no room for.
    outgoing: VecDeque<Event>,
    sandbox: Sandbox,
    groups: Cgroups,
    protections: Protections,
    reports: OwnedFd,
    report_sender: OwnedFd,
    attempts: BTreeMap<AttemptKey, Attempt>,
    /// Attempt of each slot.
    slots: Vec<Option<AttemptKey>>,
    tethers: Tethers,
    /// Blocked here, and therefore in every init from its start: a stop signal must not be lost before init reads it.
    signals: OwnedFd,
    unclaimed_since: Instant,
}

/// What the poll found ready.
enum Wakeup {
    Listener,
    Server,
    Reports,
    Signal,
    InitExited(AttemptKey),
    /// At least one tether has ended.
    Tether,
}

impl Spawner {
    pub fn new(options: Options, listener: OwnedFd) -> io::Result<Self> {
        sys::raise_file_limit();
        let groups = Cgroups::find(&options.group_name());
        // Before the first fork, so that all attempts inherit the limit.
        let total_limit = groups.limit_total();
        let mut sandbox = Sandbox::prepare(options.directories.clone());
        sandbox.memory_groups = groups.memory().is_some();
        let (reports, report_sender) = report::pair()?;
        let mut spawner = Self {
            options,
            listener,
            server: None,
            server_version: OLDEST_VERSION,
            outgoing: VecDeque::new(),
            sandbox,
            groups,
            protections: Protections::default(),
            reports,
            report_sender,
            attempts: BTreeMap::new(),
            slots: Vec::new(),
            tethers: Tethers::default(),
            signals: sys::signals(&[libc::SIGTERM, libc::SIGCHLD, sys::STOP])?,
            unclaimed_since: Instant::now(),
        };
        // A single failure may be transient.
        let mut probe = spawner.probe_sandbox();
        for _ in 1..PROBES_MAX {
            probe = probe.or_else(|_| spawner.probe_sandbox());
        }
        if let Err(reason) = probe {
            spawner.sandbox.mode = Mode::Unavailable(reason);
        }
        spawner.protections = protections::protections(&spawner.sandbox, &spawner.groups, total_limit.ok());
        Ok(spawner)
    }

    /// Checks that sandboxes work here by launching an empty command in one; the expected status is `ExecFailed`.
    fn probe_sandbox(&mut self) -> Result<(), String> {
        if let Mode::Unavailable(reason) = &self.sandbox.mode {
            return Err(reason.clone());
        }
        for profile in [Profile::Standard, Profile::Strict] {
            let key = AttemptKey { job: 0, attempt: 0 };
            let (log, input) = protections::probe_files().map_err(|error| error.to_string())?;
            let launch = Launch { profile, ..Launch::default() };
            self.launch(key, &launch, log, input).map_err(|error| format!("fork: {error}"))?;
            let exit = self.await_exit(key);
            self.attempts.clear();
            self.slots.clear();
            match exit.map(|exit| exit.status) {
                Some(ExitStatus::ExecFailed { .. }) => {}
                Some(ExitStatus::SetupFailed { step, errno }) => {
                    return Err(format!("{step}: {}", io::Error::from_raw_os_error(errno)));
                }
                other => return Err(format!("a test run in the sandbox ended with {other:?}")),
            }
        }
        Ok(())
    }

    fn await_exit(&mut self, key: AttemptKey) -> Option<Exit> {
        let deadline = Instant::now() + PROBE_TIMEOUT;
        while self.attempts.get(&key).is_some_and(|attempt| attempt.pidfd.is_some()) {
            if Instant::now() > deadline
                && let Some(pidfd) = self.attempts.get(&key).and_then(|attempt| attempt.pidfd.as_ref())
            {
                let _ = sys::send_signal(pidfd.as_fd(), libc::SIGKILL, 0);
            }
            for wakeup in self.wait(Some(Duration::from_millis(100))) {
                match wakeup {
                    // A server that connects during the probe waits: the protections are not known yet.
                    Wakeup::Listener | Wakeup::Server => std::thread::sleep(Duration::from_micros(100)),
                    Wakeup::Reports | Wakeup::Signal | Wakeup::InitExited(_) | Wakeup::Tether => self.handle(&wakeup),
                }
            }
        }
        self.attempts.get(&key)?.exit.clone()
    }

    /// Runs until a quit command or SIGTERM, or until no server has claimed it within the timeout.
    pub fn run(mut self) {
        loop {
            let timeout = [self.poll_timeout(), self.wait_for_leases()].into_iter().flatten().min();
            let wakeups = self.wait(timeout);
            wakeups.into_iter().for_each(|wakeup| self.handle(&wakeup));
            self.expire_leases();
            self.flush();
            let unclaimed = self.server.is_none()
                && (self.attempts.is_empty() && self.options.unclaimed_idle_timeout < self.unclaimed_since.elapsed()
                    || self.options.unclaimed_timeout < self.unclaimed_since.elapsed());
            if unclaimed || self.options.quit {
                return self.shut_down();
            }
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if self.server.is_some() {
            return None;
        }
        let limit =
            if self.attempts.is_empty() { self.options.unclaimed_idle_timeout } else { self.options.unclaimed_timeout };
        Some(limit.saturating_sub(self.unclaimed_since.elapsed()) + Duration::from_millis(1))
    }

    fn wait(&self, timeout: Option<Duration>) -> Vec<Wakeup> {
        let wanted = PollFlags::IN;
        let mut wakeups = vec![Wakeup::Listener, Wakeup::Reports, Wakeup::Signal];
        let mut watched = vec![
            PollFd::new(&self.listener, wanted),
            PollFd::new(&self.reports, wanted),
            PollFd::new(&self.signals, wanted),
        ];
        if let Some(server) = &self.server {
            let wanted = if self.outgoing.is_empty() { wanted } else { wanted | PollFlags::OUT };
            watched.push(PollFd::from_borrowed_fd(server.socket(), wanted));
            wakeups.push(Wakeup::Server);
        }
        for attempt in self.attempts.values() {
            if let Some(pidfd) = &attempt.pidfd {
                watched.push(PollFd::new(pidfd, wanted));
                wakeups.push(Wakeup::InitExited(attempt.key));
            }
        }
        for tether in self.tethers.watched() {
            watched.push(tether);
            wakeups.push(Wakeup::Tether);
        }
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() });
        if poll(&mut watched, timeout.as_ref()).is_err() {
            return Vec::new();
        }
        let ready: Vec<bool> = watched.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
        wakeups.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(wakeup, _)| wakeup).collect()
    }

    fn handle(&mut self, wakeup: &Wakeup) {
        match wakeup {
            Wakeup::Listener => self.accept_server(),
            Wakeup::Server => self.receive_commands(),
            Wakeup::Reports => self.receive_reports(),
            Wakeup::Signal => self.receive_signals(),
            Wakeup::InitExited(key) => self.reap(*key),
            Wakeup::Tether => self.tethers.drop_ended(),
        }
    }

    /// SIGTERM shuts the spawner down. Ends of children arrive through pidfds and reports.
    fn receive_signals(&mut self) {
        while let Some((signal, _)) = sys::next_signal(self.signals.as_fd()) {
            self.options.quit |= signal == libc::SIGTERM;
        }
    }

    /// Accepts a new server, which replaces the current one.
    fn accept_server(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.listener, flags) else { return };
        let own = rustix::process::geteuid();
        let is_ours =
            rustix::net::sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid == own || peer.uid.is_root());
        if is_ours {
            // Commands already sent by the previous server still count.
            self.receive_commands();
            self.server = Some(Channel::new(socket));
            self.outgoing.clear();
        }
    }

    fn receive_commands(&mut self) {
        loop {
            let Some(server) = &self.server else { return };
            match server.receive::<Command>() {
                Ok(Some((command, descriptors))) => self.execute(command, descriptors),
                Ok(None) => return self.disconnect_server(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A malformed message: wait for another server.
                Err(_) => return self.disconnect_server(),
            }
        }
    }

    fn disconnect_server(&mut self) {
        self.server = None;
        self.outgoing.clear();
        self.unclaimed_since = Instant::now();
    }

    fn execute(&mut self, command: Command, descriptors: Vec<OwnedFd>) {
        match command {
            Command::Hello { version } if version < OLDEST_VERSION => {
                self.send(Event::Mismatch { newest: VERSION, oldest: OLDEST_VERSION });
            }
            Command::Hello { version } => self.send_state(version.min(VERSION)),
            Command::Start { key, launch } => self.start(key, &launch, descriptors),
            Command::Stop { key, grace_ms } => self.stop(key, grace_ms),
            Command::Forget { key } => self.forget(key),
            Command::Sample => self.sample(),
            Command::Quit => self.options.quit = true,
            Command::Renew { key, lease_until } => self.renew(key, lease_until),
            Command::HoldTether => descriptors.into_iter().for_each(|connection| self.tethers.hold(connection)),
        }
    }

    fn send_state(&mut self, version: u32) {
        self.server_version = version;
        let protections = self.protections.clone();
        self.send(Event::Welcome { version, pid: std::process::id(), protections });
        let in_flight: Vec<Event> = self
            .attempts
            .values()
            .filter(|attempt| !attempt.forgotten)
            .map(|attempt| Event::InFlight {
                key: attempt.key,
                exit: attempt.exit.clone(),
                note: attempt.note.clone(),
                started: attempt.started,
                lease_until: attempt.lease.map(|lease| lease.until),
            })
            .collect();
        in_flight.into_iter().for_each(|event| self.send(event));
        self.send(Event::Ready);
    }

    fn send(&mut self, event: Event) {
        if self.server.is_some() {
            self.outgoing.push_back(event);
            self.flush();
        }
    }

    fn flush(&mut self) {
        while let (Some(server), Some(event)) = (&self.server, self.outgoing.front()) {
            match server.send(event, &[]) {
                Ok(()) => drop(self.outgoing.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.disconnect_server(),
            }
        }
    }

    fn start(&mut self, key: AttemptKey, launch: &Launch, descriptors: Vec<OwnedFd>) {
        if let Some(attempt) = self.attempts.get(&key) {
            // A repeated start: its events may have been lost.
            let (started, exit) = (attempt.started, attempt.exit.clone());
            if started && self.server_version >= STARTED_VERSION {
                self.send(Event::Started { key });
            }
            if let Some(exit) = exit {
                self.send(Event::Ended { key, exit });
            }
            return;
        }
        let status = match self.try_start(key, launch, descriptors) {
            Ok(()) => return,
            Err(status) => status,
        };
        let lease_expired = launch.lease_until.is_some_and(|until| until <= steady_clock::now_ms());
        let exit = Exit { lease_expired, ..Exit::without_usage(status, now_ms()) };
        self.send(Event::Ended { key, exit });
    }

    fn try_start(&mut self, key: AttemptKey, launch: &Launch, descriptors: Vec<OwnedFd>) -> Result<(), ExitStatus> {
        let [log, input] = <[OwnedFd; 2]>::try_from(descriptors)
            .map_err(|_| ExitStatus::SetupFailed { step: "receive descriptors".to_owned(), errno: libc::EBADF })?;
        protections::refusal(&self.sandbox, &self.groups, launch)
            .map_or(Ok(()), |reason| Err(ExitStatus::Refused { reason }))?;
        if launch.lease_until.is_some_and(|until| until <= steady_clock::now_ms()) {
            return Err(ExitStatus::Lost { reason: "its lease ran out before it was started".to_owned() });
        }
        if self.attempts.len() >= ATTEMPTS_MAX {
            return Err(ExitStatus::SetupFailed { step: "find a free slot".to_owned(), errno: libc::EAGAIN });
        }
        let setup_failed = |step: &str| {
            let step = step.to_owned();
            move |error: io::Error| ExitStatus::SetupFailed { step, errno: init::errno(&error) }
        };
        self.launch(key, launch, log, input).map_err(setup_failed("fork"))
    }

    fn launch(&mut self, key: AttemptKey, launch: &Launch, log: OwnedFd, input: OwnedFd) -> io::Result<()> {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let owner = self.sandbox.owner(self.options.first_user, slot);
        if let Some(scratch) = &launch.scratch {
            chown_outputs(&self.sandbox, scratch, launch.profile, owner)?;
        }
        let user = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        // The first call creates the groups, whose counter is then read. The second only returns their descriptors, which
        // borrow the groups.
        self.groups.prepare(slot, launch)?;
        let memory_kills = self.groups.memory_kills(slot);
        let groups = self.groups.prepare(slot, launch)?;
        match sys::fork_into(self.sandbox.namespaces(launch))? {
            Cloned::Child => {
                let slot = slot as u32;
                let report = self.report_sender.as_fd();
                let sandbox = &self.sandbox;
                init::run(InitContext { slot, launch, log, input, report, sandbox, owner, user, groups, key })
            }
            Cloned::Parent { pid, pidfd } => {
                let attempt = Attempt {
                    key,
                    slot,
                    pid,
                    pidfd: Some(pidfd),
                    exit: None,
                    started: false,
                    memory_kills,
                    forgotten: false,
                    note: launch.note.clone(),
                    lease: launch.lease_until.map(Lease::new),
                };
                self.attempts.insert(key, attempt);
                if slot == self.slots.len() {
                    self.slots.push(None);
                }
                self.slots[slot] = Some(key);
                Ok(())
            }
        }
    }

    fn stop(&mut self, key: AttemptKey, grace_ms: u32) {
        match self.attempts.get(&key) {
            Some(Attempt { pidfd: Some(pidfd), exit: None, .. }) => {
                // Fails if the attempt has just ended; its report is on the way.
                let _ = sys::send_signal(pidfd.as_fd(), sys::STOP, grace_ms.min(i32::MAX as u32) as i32);
            }
            Some(Attempt { exit: Some(exit), .. }) => {
                let exit = exit.clone();
                self.send(Event::Ended { key, exit });
            }
            Some(_) => {}
            None => {
                let status = ExitStatus::Lost { reason: "the spawner has no such attempt".to_owned() };
                let exit = Exit { stopped: true, ..Exit::without_usage(status, now_ms()) };
                self.send(Event::Ended { key, exit });
            }
        }
    }

    fn forget(&mut self, key: AttemptKey) {
        if let Some(attempt) = self.attempts.get_mut(&key) {
            attempt.forgotten = attempt.exit.is_some();
            self.drop_if_done(key);
        }
    }

    /// Drops an attempt that has ended, is forgotten by the server and reaped.
    fn drop_if_done(&mut self, key: AttemptKey) {
        if self.attempts.get(&key).is_some_and(|attempt| attempt.forgotten && attempt.pidfd.is_none()) {
            self.attempts.remove(&key);
        }
    }

    fn sample(&mut self) {
        let running = self.attempts.values().filter(|attempt| attempt.exit.is_none());
        let samples = running.map(|attempt| {
            let used = process_tree::tree_usage(attempt.pid);
            Sample { key: attempt.key, cpu_us: used.cpu_us, memory_bytes: used.memory_bytes }
        });
        let samples: Vec<Sample> = samples.collect();
        self.send(Event::Samples { samples });
    }

    fn receive_reports(&mut self) {
        while let Some(Report { slot, key, exit }) = Report::receive(self.reports.as_fd()) {
            if self.slots.get(slot as usize) == Some(&Some(key)) {
                match exit {
                    Some(exit) => self.end(key, exit),
                    None => self.note_start(key),
                }
            }
        }
    }

    fn note_start(&mut self, key: AttemptKey) {
        if let Some(attempt) = self.attempts.get_mut(&key) {
            attempt.started = true;
            if self.server_version >= STARTED_VERSION {
                self.send(Event::Started { key });
            }
        }
    }

    fn end(&mut self, key: AttemptKey, mut exit: Exit) {
        let Some(attempt) = self.attempts.get_mut(&key).filter(|attempt| attempt.exit.is_none()) else { return };
        let killed = matches!(exit.status, ExitStatus::Signalled { signal: libc::SIGKILL }) && !exit.stopped;
        if killed && self.groups.memory_kills(attempt.slot) > attempt.memory_kills {
            exit.status = ExitStatus::OverLimit { limit: crate::protocol::Limit::Memory };
        }
        exit.lease_expired = attempt.lease.is_some_and(|lease| lease.has_expired());
        attempt.exit = Some(exit.clone());
        self.send(Event::Ended { key, exit });
    }

    /// Reaps an attempt's init. Normally it has sent its report before.
    fn reap(&mut self, key: AttemptKey) {
        self.receive_reports();
        let Some(attempt) = self.attempts.get_mut(&key) else { return };
        if let Some(pidfd) = &attempt.pidfd {
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
        attempt.pidfd = None;
        self.slots[attempt.slot] = None;
        let status = ExitStatus::Lost { reason: "the attempt's init process was killed".to_owned() };
        self.end(key, Exit::without_usage(status, now_ms()));
        self.drop_if_done(key);
    }

    /// Stops all attempts, then removes the control groups. Tethers end last, with the spawner.
    fn shut_down(mut self) {
        for attempt in self.attempts.values() {
            if let Some(pidfd) = &attempt.pidfd {
                let _ = sys::send_signal(pidfd.as_fd(), sys::STOP, 0);
            }
        }
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while self.attempts.values().any(|attempt| attempt.pidfd.is_some()) && Instant::now() < deadline {
            let wakeups = self.wait(Some(Duration::from_millis(100)));
            wakeups.into_iter().for_each(|wakeup| self.handle(&wakeup));
        }
        self.groups.remove();
    }
}

/// Makes the program's user the owner of the outputs directory.
fn chown_outputs(sandbox: &Sandbox, scratch: &str, profile: Profile, owner: u32) -> io::Result<()> {
    let is_name = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !is_name(scratch) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if profile == Profile::None || !matches!(sandbox.mode, Mode::Privileged) {
        return Ok(());
    }
    let outputs = sandbox.scratch().join(scratch).join("outputs");
    let (user, group) = (rustix::fs::Uid::from_raw(owner), rustix::fs::Gid::from_raw(owner));
    Ok(rustix::fs::chown(outputs, Some(user), Some(group))?)
}
