//! The spawner's own life: takes orders from whichever server is there, and keeps what attempts came to until one has it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::channel::Channel;
use crate::groups::Groups;
use crate::init::{self, Beginning, now_ms};
use crate::processes;
use crate::protocol::{Exit, Key, Launch, OLDEST_VERSION, Order, Profile, Protections, Sample, VERSION, Verdict, Word};
use crate::report::{self, Report};
use crate::sandbox::{Mode, Sandbox};
use crate::start::Options;
use crate::sys::{self, Cloned};
use crate::trial;

/// How many attempts are held at once, those that have ended and are not forgotten among them.
pub const HELD_MAX: usize = 4096;
/// How long everything may take to end when the spawner itself has to.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// How long a trial of the sandbox may take, and how often it is repeated.
const TRIAL_PATIENCE: Duration = Duration::from_secs(10);
const TRIALS_MAX: usize = 3;

/// An attempt in hand.
struct Held {
    key: Key,
    slot: usize,
    pid: i32,
    /// Absent once its init is gone.
    pidfd: Option<OwnedFd>,
    exit: Option<Exit>,
    /// How often memory had run out in its group before it began.
    memory_kills: u64,
    forgotten: bool,
    note: Vec<u8>,
}

/// The spawner.
pub struct Keeper {
    options: Options,
    listener: OwnedFd,
    server: Option<Channel>,
    /// Words that the server's socket had no room for.
    outgoing: VecDeque<Word>,
    sandbox: Sandbox,
    groups: Groups,
    protections: Protections,
    reports: OwnedFd,
    report_here: OwnedFd,
    held: BTreeMap<Key, Held>,
    /// Which attempt a slot belongs to.
    slots: Vec<Option<Key>>,
    /// Blocked here and so in every init from its first moment: a stop must not be lost before it is listened for.
    signals: OwnedFd,
    unclaimed_since: Instant,
}

/// What a look at the world brought.
enum Event {
    Listener,
    Server,
    Reports,
    Signal,
    Gone(Key),
}

impl Keeper {
    pub fn new(options: Options, listener: OwnedFd) -> io::Result<Self> {
        sys::raise_file_limit();
        let groups = Groups::find(&options.group_name());
        // Before anything is forked, so that everything is.
        let bounded = groups.bound_all();
        let mut sandbox = Sandbox::prepare(options.places.clone());
        sandbox.memory_groups = groups.memory().is_some();
        let (reports, report_here) = report::pair()?;
        let mut keeper = Self {
            options,
            listener,
            server: None,
            outgoing: VecDeque::new(),
            sandbox,
            groups,
            protections: Protections::default(),
            reports,
            report_here,
            held: BTreeMap::new(),
            slots: Vec::new(),
            signals: sys::signals(&[libc::SIGTERM, libc::SIGCHLD, sys::STOP])?,
            unclaimed_since: Instant::now(),
        };
        // Once may be bad luck.
        let mut tried = keeper.try_sandbox();
        for _ in 1..TRIALS_MAX {
            tried = tried.or_else(|_| keeper.try_sandbox());
        }
        if let Err(why) = tried {
            keeper.sandbox.mode = Mode::Missing(why);
        }
        keeper.protections = trial::protections(&keeper.sandbox, &keeper.groups, bounded.ok());
        Ok(keeper)
    }

    /// Whether a sandbox can really be made here: one is, and an empty command is not found in it.
    fn try_sandbox(&mut self) -> Result<(), String> {
        if let Mode::Missing(why) = &self.sandbox.mode {
            return Err(why.clone());
        }
        for profile in [Profile::Standard, Profile::Strict] {
            let key = Key { job: 0, attempt: 0 };
            let (log, input) = trial::files().map_err(|error| error.to_string())?;
            let launch = Launch { profile, ..Launch::default() };
            self.launch(key, &launch, log, input).map_err(|error| format!("fork: {error}"))?;
            let exit = self.await_exit(key);
            self.held.clear();
            self.slots.clear();
            match exit.map(|exit| exit.verdict) {
                Some(Verdict::NoProgram { .. }) => {}
                Some(Verdict::NoPlace { step, errno }) => {
                    return Err(format!("{step}: {}", io::Error::from_raw_os_error(errno)));
                }
                other => return Err(format!("a trial ended with {other:?}")),
            }
        }
        Ok(())
    }

    fn await_exit(&mut self, key: Key) -> Option<Exit> {
        let until = Instant::now() + TRIAL_PATIENCE;
        while self.held.get(&key).is_some_and(|held| held.pidfd.is_some()) {
            if Instant::now() > until
                && let Some(pidfd) = self.held.get(&key).and_then(|held| held.pidfd.as_ref())
            {
                let _ = sys::send_signal(pidfd.as_fd(), libc::SIGKILL, 0);
            }
            for event in self.wait(Some(Duration::from_millis(100))) {
                match event {
                    // A server that is there already has to wait until it can be told the truth.
                    Event::Listener | Event::Server => std::thread::sleep(Duration::from_micros(100)),
                    Event::Reports | Event::Signal | Event::Gone(_) => self.handle(&event),
                }
            }
        }
        self.held.get(&key)?.exit.clone()
    }

    /// Lives until it is told to quit, or nobody has wanted it for too long.
    pub fn live(mut self) {
        loop {
            let events = self.wait(self.patience());
            events.into_iter().for_each(|event| self.handle(&event));
            self.flush();
            let unclaimed = self.server.is_none()
                && (self.held.is_empty() && self.options.unclaimed_idle < self.unclaimed_since.elapsed()
                    || self.options.unclaimed < self.unclaimed_since.elapsed());
            if unclaimed || self.options.quit {
                return self.end_everything();
            }
        }
    }

    fn patience(&self) -> Option<Duration> {
        if self.server.is_some() {
            return None;
        }
        let limit = if self.held.is_empty() { self.options.unclaimed_idle } else { self.options.unclaimed };
        Some(limit.saturating_sub(self.unclaimed_since.elapsed()) + Duration::from_millis(1))
    }

    fn wait(&self, longest: Option<Duration>) -> Vec<Event> {
        let wanted = PollFlags::IN;
        let mut events = vec![Event::Listener, Event::Reports, Event::Signal];
        let mut watched = vec![
            PollFd::new(&self.listener, wanted),
            PollFd::new(&self.reports, wanted),
            PollFd::new(&self.signals, wanted),
        ];
        if let Some(server) = &self.server {
            let wanted = if self.outgoing.is_empty() { wanted } else { wanted | PollFlags::OUT };
            watched.push(PollFd::from_borrowed_fd(server.socket(), wanted));
            events.push(Event::Server);
        }
        for held in self.held.values() {
            if let Some(pidfd) = &held.pidfd {
                watched.push(PollFd::new(pidfd, wanted));
                events.push(Event::Gone(held.key));
            }
        }
        let longest = longest
            .map(|longest| Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() });
        if poll(&mut watched, longest.as_ref()).is_err() {
            return Vec::new();
        }
        let ready: Vec<bool> = watched.iter().map(|one| !one.revents().is_empty()).collect();
        events.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(event, _)| event).collect()
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::Listener => self.welcome(),
            Event::Server => self.obey(),
            Event::Reports => self.take_reports(),
            Event::Signal => self.take_signals(),
            Event::Gone(key) => self.reap(*key),
        }
    }

    /// Somebody asks the spawner itself to end. What its children do comes over other ways.
    fn take_signals(&mut self) {
        while let Some((signal, _)) = sys::next_signal(self.signals.as_fd()) {
            self.options.quit |= signal == libc::SIGTERM;
        }
    }

    /// A server has come; an earlier one has no say any more.
    fn welcome(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.listener, flags) else { return };
        let own = rustix::process::geteuid();
        let is_ours =
            rustix::net::sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid == own || peer.uid.is_root());
        if is_ours {
            // What the earlier one has said counts.
            self.obey();
            self.server = Some(Channel::new(socket));
            self.outgoing.clear();
        }
    }

    fn obey(&mut self) {
        loop {
            let Some(server) = &self.server else { return };
            match server.receive::<Order>() {
                Ok(Some((order, descriptors))) => self.follow(order, descriptors),
                Ok(None) => return self.lose_server(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It speaks nonsense; whoever comes next may not.
                Err(_) => return self.lose_server(),
            }
        }
    }

    fn lose_server(&mut self) {
        self.server = None;
        self.outgoing.clear();
        self.unclaimed_since = Instant::now();
    }

    fn follow(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        match order {
            Order::Hello { version } if version < OLDEST_VERSION => {
                self.say(Word::Mismatch { newest: VERSION, oldest: OLDEST_VERSION });
            }
            Order::Hello { version } => self.introduce(version.min(VERSION)),
            Order::Start { key, launch } => self.start(key, &launch, descriptors),
            Order::Stop { key, grace_ms } => self.stop(key, grace_ms),
            Order::Forget { key } => self.forget(key),
            Order::Sample => self.sample(),
            Order::Quit => self.options.quit = true,
        }
    }

    fn introduce(&mut self, version: u32) {
        let protections = self.protections.clone();
        self.say(Word::Welcome { version, pid: std::process::id(), protections });
        let holding: Vec<Word> = self
            .held
            .values()
            .filter(|held| !held.forgotten)
            .map(|held| Word::Holding { key: held.key, exit: held.exit.clone(), note: held.note.clone() })
            .collect();
        holding.into_iter().for_each(|word| self.say(word));
        self.say(Word::Ready);
    }

    fn say(&mut self, word: Word) {
        if self.server.is_some() {
            self.outgoing.push_back(word);
            self.flush();
        }
    }

    fn flush(&mut self) {
        while let (Some(server), Some(word)) = (&self.server, self.outgoing.front()) {
            match server.send(word, &[]) {
                Ok(()) => drop(self.outgoing.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.lose_server(),
            }
        }
    }

    fn start(&mut self, key: Key, launch: &Launch, descriptors: Vec<OwnedFd>) {
        if let Some(held) = self.held.get(&key) {
            // Said again: its end may not have arrived.
            if let Some(exit) = held.exit.clone() {
                self.say(Word::Ended { key, exit });
            }
            return;
        }
        let verdict = match self.begin(key, launch, descriptors) {
            Ok(()) => return,
            Err(verdict) => verdict,
        };
        let exit =
            Exit { verdict, stopped: false, cpu_us: 0, memory_peak_bytes: 0, ended_at: now_ms(), log_errno: None };
        self.say(Word::Ended { key, exit });
    }

    fn begin(&mut self, key: Key, launch: &Launch, descriptors: Vec<OwnedFd>) -> Result<(), Verdict> {
        let [log, input] = <[OwnedFd; 2]>::try_from(descriptors)
            .map_err(|_| Verdict::NoPlace { step: "take descriptors".to_owned(), errno: libc::EBADF })?;
        trial::refusal(&self.sandbox, &self.groups, launch).map_or(Ok(()), |why| Err(Verdict::Refused { why }))?;
        if self.held.len() >= HELD_MAX {
            return Err(Verdict::NoPlace { step: "find room".to_owned(), errno: libc::EAGAIN });
        }
        let no_place = |step: &str| {
            let step = step.to_owned();
            move |error: io::Error| Verdict::NoPlace { step, errno: init::errno(&error) }
        };
        self.launch(key, launch, log, input).map_err(no_place("fork"))
    }

    fn launch(&mut self, key: Key, launch: &Launch, log: OwnedFd, input: OwnedFd) -> io::Result<()> {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let owner = self.sandbox.owner(self.options.first_user, slot);
        if let Some(scratch) = &launch.scratch {
            give_outputs(&self.sandbox, scratch, launch.profile, owner)?;
        }
        let user = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        self.groups.enlist(slot, launch)?;
        let memory_kills = self.groups.memory_kills(slot);
        let groups = self.groups.enlist(slot, launch)?;
        match sys::fork_into(self.sandbox.namespaces(launch))? {
            Cloned::Child => {
                let slot = slot as u32;
                let report = self.report_here.as_fd();
                let sandbox = &self.sandbox;
                init::live(Beginning { slot, launch, log, input, report, sandbox, owner, user, groups, key })
            }
            Cloned::Parent { pid, pidfd } => {
                let (pidfd, note) = (Some(pidfd), launch.note.clone());
                let held = Held { key, slot, pid, pidfd, exit: None, memory_kills, forgotten: false, note };
                self.held.insert(key, held);
                if slot == self.slots.len() {
                    self.slots.push(None);
                }
                self.slots[slot] = Some(key);
                Ok(())
            }
        }
    }

    fn stop(&mut self, key: Key, grace_ms: u32) {
        match self.held.get(&key) {
            Some(Held { pidfd: Some(pidfd), exit: None, .. }) => {
                // One that has just ended reports it.
                let _ = sys::send_signal(pidfd.as_fd(), sys::STOP, grace_ms.min(i32::MAX as u32) as i32);
            }
            Some(Held { exit: Some(exit), .. }) => {
                let exit = exit.clone();
                self.say(Word::Ended { key, exit });
            }
            Some(_) => {}
            None => {
                let verdict = Verdict::Lost { why: "the spawner does not know it".to_owned() };
                let exit = Exit {
                    verdict,
                    stopped: true,
                    cpu_us: 0,
                    memory_peak_bytes: 0,
                    ended_at: now_ms(),
                    log_errno: None,
                };
                self.say(Word::Ended { key, exit });
            }
        }
    }

    fn forget(&mut self, key: Key) {
        if let Some(held) = self.held.get_mut(&key) {
            held.forgotten = held.exit.is_some();
            self.let_go(key);
        }
    }

    /// An attempt that is over, told of and reaped needs no place here.
    fn let_go(&mut self, key: Key) {
        if self.held.get(&key).is_some_and(|held| held.forgotten && held.pidfd.is_none()) {
            self.held.remove(&key);
        }
    }

    fn sample(&mut self) {
        let running = self.held.values().filter(|held| held.exit.is_none());
        let samples = running.map(|held| {
            let used = processes::used_by_tree(held.pid);
            Sample { key: held.key, cpu_us: used.cpu_us, memory_bytes: used.memory_bytes }
        });
        let samples: Vec<Sample> = samples.collect();
        self.say(Word::Samples { samples });
    }

    fn take_reports(&mut self) {
        while let Some(Report { slot, key, exit }) = Report::receive(self.reports.as_fd()) {
            if self.slots.get(slot as usize) == Some(&Some(key)) {
                self.end(key, exit);
            }
        }
    }

    fn end(&mut self, key: Key, mut exit: Exit) {
        let Some(held) = self.held.get_mut(&key).filter(|held| held.exit.is_none()) else { return };
        let killed = matches!(exit.verdict, Verdict::Signalled { signal: libc::SIGKILL }) && !exit.stopped;
        if killed && self.groups.memory_kills(held.slot) > held.memory_kills {
            exit.verdict = Verdict::OverLimit { limit: crate::protocol::Limit::Memory };
        }
        held.exit = Some(exit.clone());
        self.say(Word::Ended { key, exit });
    }

    /// An attempt's init has gone; as a rule it has reported before.
    fn reap(&mut self, key: Key) {
        self.take_reports();
        let Some(held) = self.held.get_mut(&key) else { return };
        if let Some(pidfd) = &held.pidfd {
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
        held.pidfd = None;
        self.slots[held.slot] = None;
        let verdict = Verdict::Lost { why: "the process that kept it was killed".to_owned() };
        let exit =
            Exit { verdict, stopped: false, cpu_us: 0, memory_peak_bytes: 0, ended_at: now_ms(), log_errno: None };
        self.end(key, exit);
        self.let_go(key);
    }

    /// Ends all attempts and then the spawner.
    fn end_everything(mut self) {
        for held in self.held.values() {
            if let Some(pidfd) = &held.pidfd {
                let _ = sys::send_signal(pidfd.as_fd(), sys::STOP, 0);
            }
        }
        let until = Instant::now() + LAST_PATIENCE;
        while self.held.values().any(|held| held.pidfd.is_some()) && Instant::now() < until {
            let events = self.wait(Some(Duration::from_millis(100)));
            events.into_iter().for_each(|event| self.handle(&event));
        }
        self.groups.remove();
    }
}

/// Outputs belong to the user that the program runs as.
fn give_outputs(sandbox: &Sandbox, scratch: &str, profile: Profile, owner: u32) -> io::Result<()> {
    let is_name = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !is_name(scratch) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if profile == Profile::None || !matches!(sandbox.mode, Mode::Prepared) {
        return Ok(());
    }
    let outputs = sandbox.scratch().join(scratch).join("outputs");
    let (user, group) = (rustix::fs::Uid::from_raw(owner), rustix::fs::Gid::from_raw(owner));
    Ok(rustix::fs::chown(outputs, Some(user), Some(group))?)
}
