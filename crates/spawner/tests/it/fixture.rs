//! A spawner of one's own, and a way to run things with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spawner::log::{HEADER_BYTES, Header, Stream};
use spawner::protocol::{Bounds, Exit, Key, Launch, Order, Profile, Sample, Verdict, Word};
use spawner::{Claimed, Options, Places, claim, file_with};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Fixture {
    pub dir: TempDir,
    pub options: Options,
    pub claimed: Claimed,
    exits: BTreeMap<Key, Exit>,
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

/// The one that was built with these tests, or a copy of it that everybody may run.
pub fn spawner_program() -> PathBuf {
    std::env::var_os("OUTLAST_SPAWNER").map_or_else(|| env!("CARGO_BIN_EXE_outlast-spawner").into(), PathBuf::from)
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let places = Places {
            base: dir.path().join("base"),
            scratch: dir.path().join("scratch"),
            workers: dir.path().join("workers"),
        };
        let node = dir.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut options = Options {
            places,
            node,
            unclaimed: Duration::from_secs(120),
            unclaimed_idle: Duration::from_secs(120),
            first_user: 2_000_000,
            quit: false,
        };
        change(&mut options);
        std::fs::create_dir(dir.path().join("logs")).unwrap();
        let claimed = Self::claim(dir.path(), &options);
        Self { dir, options, claimed, exits: BTreeMap::new(), next_job: 1 }
    }

    fn claim(dir: &Path, options: &Options) -> Claimed {
        claim(options, &spawner_program(), &dir.join("spawner.sock"), &dir.join("spawner.log")).unwrap()
    }

    /// A server that was killed, and its successor.
    pub fn replace_server(&mut self) {
        let successor = Self::claim(self.dir.path(), &self.options);
        let child = self.claimed.child.take();
        self.claimed = successor;
        self.claimed.child = self.claimed.child.take().or(child);
        self.exits.clear();
    }

    pub fn log_path(&self, key: Key) -> PathBuf {
        self.dir.path().join("logs").join(format!("{}.{}", key.job, key.attempt))
    }

    pub fn start(&mut self, launch: Launch) -> Key {
        self.start_with(launch, b"")
    }

    pub fn start_with(&mut self, launch: Launch, input: &[u8]) -> Key {
        let key = Key { job: self.next_job, attempt: 1 };
        self.next_job += 1;
        self.start_as(key, launch, input);
        key
    }

    pub fn start_as(&mut self, key: Key, launch: Launch, input: &[u8]) {
        let log = OwnedFd::from(File::create(self.log_path(key)).unwrap());
        let input = file_with(input).unwrap();
        let order = Order::Start { key, launch: Box::new(launch) };
        self.claimed.channel.send(&order, &[log.as_fd(), input.as_fd()]).unwrap();
    }

    pub fn order(&self, order: &Order) {
        self.claimed.channel.send(order, &[]).unwrap();
    }

    /// Makes `scratch/<name>` with its directories.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.options.places.scratch.join(name);
        for directory in ["inputs", "outputs", "worker"] {
            std::fs::create_dir_all(path.join(directory)).unwrap();
        }
        path
    }

    fn next_word(&mut self, patience: Duration) -> Option<Word> {
        let mut watched = [PollFd::from_borrowed_fd(self.claimed.channel.socket(), PollFlags::IN)];
        let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        poll(&mut watched, Some(&timeout)).unwrap();
        match self.claimed.channel.receive::<Word>() {
            Ok(word) => word.map(|(word, _)| word),
            Err(_) => None,
        }
    }

    pub fn await_exit(&mut self, key: Key) -> Exit {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(exit) = self.exits.get(&key) {
                return exit.clone();
            }
            assert!(Instant::now() < until, "no end of {key:?}");
            if let Some(Word::Ended { key, exit }) = self.next_word(Duration::from_secs(1)) {
                self.exits.insert(key, exit);
            }
        }
    }

    pub fn sample(&mut self) -> Vec<Sample> {
        self.order(&Order::Sample);
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until);
            if let Some(Word::Samples { samples }) = self.next_word(Duration::from_secs(1)) {
                return samples;
            }
        }
    }

    pub fn run(&mut self, launch: Launch) -> (Exit, String, String) {
        let key = self.start(launch);
        let exit = self.await_exit(key);
        (exit, self.output(key, Stream::Stdout), self.output(key, Stream::Stderr))
    }

    pub fn output(&self, key: Key, stream: Stream) -> String {
        let bytes: Vec<u8> = pieces(&std::fs::read(self.log_path(key)).unwrap())
            .into_iter()
            .filter(|(header, _)| header.stream == stream)
            .flat_map(|(_, bytes)| bytes)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn await_output(&self, key: Key, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.output(key, Stream::Stdout).contains(text) {
            assert!(Instant::now() < until, "no {text:?} in {:?}", self.output(key, Stream::Stdout));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.claimed.channel.send(&Order::Quit, &[]);
        if let Some(child) = &mut self.claimed.child {
            let _ = child.wait();
        }
    }
}

/// All whole pieces of a log; zeros are passed over.
pub fn pieces(bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + HEADER_BYTES <= bytes.len() {
        if bytes[at] == 0 {
            at += 1;
            continue;
        }
        let header = Header::from_bytes(bytes[at..at + HEADER_BYTES].try_into().unwrap()).unwrap();
        let end = at + HEADER_BYTES + header.len as usize;
        if end > bytes.len() {
            break;
        }
        found.push((header, bytes[at + HEADER_BYTES..end].to_vec()));
        at = end;
    }
    found
}

pub fn exited(exit: &Exit) -> i32 {
    match exit.verdict {
        Verdict::Exited { code } => code,
        ref other => panic!("{other:?}"),
    }
}
