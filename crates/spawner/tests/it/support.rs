//! Fixture: a spawner with its own directories, and helpers to run programs with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spawner::log::{HEADER_BYTES, Header, Stream};
use spawner::protocol::{AttemptKey, Bounds, Command, Event, Exit, ExitStatus, Launch, Profile, Sample};
use spawner::{ClaimedSpawner, Directories, Options, claim, memfd_with};
use tempfile::TempDir;

/// Longer than any step takes on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Fixture {
    pub dir: TempDir,
    pub options: Options,
    pub claimed: ClaimedSpawner,
    exits: BTreeMap<AttemptKey, Exit>,
    next_job: u64,
}

pub fn launch(profile: Profile, script: &str) -> Launch {
    Launch {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        environment: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned())],
        profile,
        bounds: Bounds { processes: Some(64), log_head_bytes: 1 << 20, log_tail_bytes: 1 << 20, ..Bounds::default() },
        ..Launch::default()
    }
}

/// The spawner built with these tests, or a copy that every user may execute.
pub fn spawner_program() -> PathBuf {
    std::env::var_os("OUTLAST_SPAWNER").map_or_else(|| env!("CARGO_BIN_EXE_outlast-spawner").into(), PathBuf::from)
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let directories = Directories {
            base: dir.path().join("base"),
            scratch: dir.path().join("scratch"),
            workers: dir.path().join("workers"),
        };
        let node = dir.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut options = Options {
            directories,
            node,
            unclaimed_timeout: Duration::from_secs(120),
            unclaimed_idle_timeout: Duration::from_secs(120),
            first_user: 2_000_000,
            quit: false,
        };
        change(&mut options);
        std::fs::create_dir(dir.path().join("logs")).unwrap();
        let claimed = Self::claim(dir.path(), &options);
        Self { dir, options, claimed, exits: BTreeMap::new(), next_job: 1 }
    }

    fn claim(dir: &Path, options: &Options) -> ClaimedSpawner {
        claim(options, &spawner_program(), &dir.join("spawner.sock"), &dir.join("spawner.log")).unwrap()
    }

    /// Replaces the server, as after a crash.
    pub fn replace_server(&mut self) {
        let successor = Self::claim(self.dir.path(), &self.options);
        let child = self.claimed.child.take();
        self.claimed = successor;
        self.claimed.child = self.claimed.child.take().or(child);
        self.exits.clear();
    }

    pub fn log_path(&self, key: AttemptKey) -> PathBuf {
        self.dir.path().join("logs").join(format!("{}.{}", key.job, key.attempt))
    }

    pub fn start(&mut self, launch: Launch) -> AttemptKey {
        self.start_with(launch, b"")
    }

    pub fn start_with(&mut self, launch: Launch, input: &[u8]) -> AttemptKey {
        let key = AttemptKey { job: self.next_job, attempt: 1 };
        self.next_job += 1;
        self.start_as(key, launch, input);
        key
    }

    pub fn start_as(&mut self, key: AttemptKey, launch: Launch, input: &[u8]) {
        let log = OwnedFd::from(File::create(self.log_path(key)).unwrap());
        let input = memfd_with(input).unwrap();
        let command = Command::Start { key, launch: Box::new(launch) };
        self.claimed.channel.send(&command, &[log.as_fd(), input.as_fd()]).unwrap();
    }

    pub fn send(&self, command: &Command) {
        self.claimed.channel.send(command, &[]).unwrap();
    }

    /// Creates `scratch/<name>` with its subdirectories.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.options.directories.scratch.join(name);
        for directory in ["inputs", "outputs", "worker"] {
            std::fs::create_dir_all(path.join(directory)).unwrap();
        }
        path
    }

    fn next_event(&mut self, timeout: Duration) -> Option<Event> {
        let mut watched = [PollFd::from_borrowed_fd(self.claimed.channel.socket(), PollFlags::IN)];
        let timespec = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        poll(&mut watched, Some(&timespec)).unwrap();
        match self.claimed.channel.receive::<Event>() {
            Ok(message) => message.map(|(event, _)| event),
            Err(_) => None,
        }
    }

    pub fn await_exit(&mut self, key: AttemptKey) -> Exit {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(exit) = self.exits.get(&key) {
                return exit.clone();
            }
            assert!(Instant::now() < deadline, "{key:?} did not end");
            if let Some(Event::Ended { key, exit }) = self.next_event(Duration::from_secs(1)) {
                self.exits.insert(key, exit);
            }
        }
    }

    pub fn sample(&mut self) -> Vec<Sample> {
        self.send(&Command::Sample);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            assert!(Instant::now() < deadline);
            if let Some(Event::Samples { samples }) = self.next_event(Duration::from_secs(1)) {
                return samples;
            }
        }
    }

    pub fn run(&mut self, launch: Launch) -> (Exit, String, String) {
        let key = self.start(launch);
        let exit = self.await_exit(key);
        (exit, self.output(key, Stream::Stdout), self.output(key, Stream::Stderr))
    }

    pub fn output(&self, key: AttemptKey, stream: Stream) -> String {
        let bytes: Vec<u8> = chunks(&std::fs::read(self.log_path(key)).unwrap())
            .into_iter()
            .filter(|(header, _)| header.stream == stream)
            .flat_map(|(_, bytes)| bytes)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn await_output(&self, key: AttemptKey, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.output(key, Stream::Stdout).contains(text) {
            assert!(Instant::now() < deadline, "no {text:?} in {:?}", self.output(key, Stream::Stdout));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.claimed.channel.send(&Command::Quit, &[]);
        if let Some(child) = &mut self.claimed.child {
            let _ = child.wait();
        }
    }
}

/// All complete chunks of a log; holes are skipped.
pub fn chunks(bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut found = Vec::new();
    let mut offset = 0;
    while offset + HEADER_BYTES <= bytes.len() {
        if bytes[offset] == 0 {
            offset += 1;
            continue;
        }
        let header = Header::from_bytes(bytes[offset..offset + HEADER_BYTES].try_into().unwrap()).unwrap();
        let end = offset + HEADER_BYTES + header.len as usize;
        if end > bytes.len() {
            break;
        }
        found.push((header, bytes[offset + HEADER_BYTES..end].to_vec()));
        offset = end;
    }
    found
}

pub fn exited(exit: &Exit) -> i32 {
    match exit.status {
        ExitStatus::Exited { code } => code,
        ref other => panic!("{other:?}"),
    }
}
