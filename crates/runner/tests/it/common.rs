//! The one fixture: a runner, and shards that write down what it says.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blobs::Blobs;
use bytes::Bytes;
use model::id::{Attempt, Epoch, Incarnation, JobId, NodeId, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::message::{Capacity, FromRunner, Load, RunnerWord, ShardFace, Ticket, ToRunner};
use model::spec::JobSpec;
use model::time::Millis;
use model::verdict::Constraints;
use runner::{Defaults, Handle, Options, SpawnerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

pub const INCARNATION: Incarnation = Incarnation(3);
const DEADLINE: Duration = Duration::from_secs(20);

struct Listener(mpsc::UnboundedSender<(ShardId, FromRunner)>);

impl runner::Uplink for Listener {
    fn deliver(&self, shard: ShardId, words: Vec<FromRunner>) {
        for word in words {
            // After the test nobody listens.
            let _ = self.0.send((shard, word));
        }
    }

    fn load(&self, _: Incarnation, _: Load) {}
}

/// A runner with two shards and a small capacity.
pub struct Bench {
    pub runner: Handle,
    said: mpsc::UnboundedReceiver<(ShardId, FromRunner)>,
    pub directory: TempDir,
    pub blobs: Blobs,
    questions: u64,
}

/// A word and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub sequence: u64,
    pub word: RunnerWord,
}

impl Bench {
    /// Says hello to both shards before it returns.
    pub async fn new(capacity: Capacity) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path(), capacity).await;
        let (sender, said) = mpsc::unbounded_channel();
        let blobs = options.blobs.clone();
        let runner = runner::start(options, Arc::new(Listener(sender))).await.unwrap();
        let mut bench = Self { runner, said, directory, blobs, questions: 100 };
        for shard in [0, 1] {
            let (from, word) = bench.any_word().await;
            assert_eq!(from, ShardId(shard));
            assert_eq!(word.sequence, 1);
            let hello = RunnerWord::Here {
                capacity,
                profile: Arc::default(),
                holding: Vec::new(),
                question: 0,
                oldest_kept: 1,
            };
            assert_eq!(word.word, hello);
        }
        bench
    }

    pub async fn roomy() -> Self {
        Self::new(Capacity { process: 4, echo: 4, wasm: 0 }).await
    }

    pub fn tell(&self, message: ToRunner) {
        self.tell_as(ShardId(0), Epoch(5), message);
    }

    pub fn tell_as(&self, shard: ShardId, epoch: Epoch, message: ToRunner) {
        self.runner.send(ShardFace { shard, epoch }, INCARNATION, vec![message]);
    }

    pub fn run(&self, ticket: Ticket, job: &Value) {
        self.tell(ToRunner::Run { ticket, spec: spec(job), constraints: None });
    }

    /// The same, with what the policy allows it at the most.
    pub fn run_constrained(&self, ticket: Ticket, job: &Value, constraints: Constraints) {
        self.tell(ToRunner::Run { ticket, spec: spec(job), constraints: Some(Box::new(constraints)) });
    }

    pub async fn any_word(&mut self) -> (ShardId, Said) {
        let (shard, word) = tokio::time::timeout(DEADLINE, self.said.recv()).await.expect("it says nothing").unwrap();
        assert_eq!((word.runner, word.incarnation), (RunnerId(7), INCARNATION));
        (shard, Said { sequence: word.sequence, word: word.word })
    }

    /// The next word to the first shard.
    pub async fn word(&mut self) -> Said {
        let (shard, said) = self.any_word().await;
        assert_eq!(shard, ShardId(0));
        said
    }

    /// Waits until neither files nor output of any attempt are left.
    pub async fn nothing_left(&self) {
        let count = |directory: PathBuf| std::fs::read_dir(directory).map_or(0, |entries| entries.count());
        let logs = || std::fs::read_dir(self.directory.path().join("logs")).into_iter().flatten().flatten();
        while count(self.directory.path().join("scratch")) > 0 || logs().any(|entry| count(entry.path()) > 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn log(&self, ticket: Ticket) -> PathBuf {
        runner::logs::path(&self.directory.path().join("logs"), ticket)
    }

    pub async fn started(&mut self, ticket: Ticket) {
        let said = self.word().await;
        assert_eq!(said.word, RunnerWord::Started { ticket, at: Millis(42) });
    }

    pub async fn ended(&mut self, ticket: Ticket) -> Outcome {
        let said = self.word().await;
        match said.word {
            RunnerWord::Ended { ticket: other, outcome, .. } if other == ticket => *outcome,
            other => panic!("{other:?} instead of the end of {ticket:?}"),
        }
    }

    pub async fn stopped(&mut self, ticket: Ticket) {
        assert_eq!(self.ended(ticket).await.end, End::Stopped);
    }

    /// What is not known to be committed, and the inventory after it.
    pub async fn inventory(&mut self) -> (Vec<Said>, RunnerWord) {
        self.questions += 1;
        self.tell(ToRunner::Inventory { question: self.questions });
        let mut repeated = Vec::new();
        loop {
            let said = self.word().await;
            if matches!(said.word, RunnerWord::Here { question, .. } if question == self.questions) {
                return (repeated, said.word);
            }
            repeated.push(said);
        }
    }

    /// Commits everything said so far; what is in hand.
    pub async fn settle(&mut self) -> Vec<Ticket> {
        let (repeated, here) = self.inventory().await;
        let last = repeated.last().map_or(0, |said| said.sequence) + 1;
        self.tell(ToRunner::Committed { sequence: last });
        match here {
            RunnerWord::Here { holding, .. } => holding,
            other => panic!("{other:?}"),
        }
    }
}

async fn options(directory: &Path, capacity: Capacity) -> Options {
    let node = new_node();
    let location = blobs::Location::Directory(directory.join("blobs"));
    Options {
        id: RunnerId(7),
        incarnation: INCARNATION,
        node,
        capacity,
        profile: Arc::default(),
        shards: Shards::new(2).unwrap(),
        logs: directory.join("logs"),
        scratch: directory.join("scratch"),
        stop_grace: Duration::from_millis(200),
        defaults: Defaults {
            processes: 64,
            output_bytes: 10 << 20,
            log_bytes: 1 << 20,
            tmp_bytes: 10 << 20,
            network_topics: Vec::new(),
            allow_unsandboxed: true,
        },
        memory_reserve_bytes: 0,
        blobs: Blobs::open(blobs::Options::new(location, directory.join("work"))).await.unwrap(),
        spawner: SpawnerOptions {
            options: spawner::Options {
                places: spawner::Places {
                    base: directory.join("sandbox"),
                    scratch: directory.join("scratch"),
                    workers: directory.join("work/cache/workers"),
                },
                node: node.to_string(),
                unclaimed: Duration::from_secs(5),
                unclaimed_idle: Duration::from_secs(1),
                first_user: 2_100_000,
                quit: false,
            },
            program: spawner_program(),
            socket: directory.join("spawner.sock"),
            log: directory.join("spawner.log"),
        },
        wasm: wasm::Options::new(directory.join("wasm")),
        now: || Millis(42),
    }
}

/// The spawner that is built beside the tests.
fn spawner_program() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let program = beside.parent().unwrap().parent().unwrap().join("outlast-spawner");
    assert!(program.exists(), "build it first: cargo build -p spawner --bin outlast-spawner");
    program
}

/// Processes are found by their node: tests that run beside each other must not share one.
pub fn new_node() -> NodeId {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    NodeId(u64::from(std::process::id()) << 32 | COUNT.fetch_add(1, Ordering::Relaxed))
}

pub fn ticket(job: u64) -> Ticket {
    Ticket { job: JobId(job), attempt: Attempt(1) }
}

pub fn spec(job: &Value) -> Bytes {
    let spec: JobSpec = serde_json::from_str(&job.to_string()).unwrap();
    spec.pack().bytes
}

pub fn echo() -> Value {
    json!({"run": {"echo": {"value": "said"}}})
}

/// Longer than any test waits.
pub fn endless() -> Value {
    json!({"run": {"echo": {"delay_ms": 600_000}}})
}

pub fn sandboxed(script: &str) -> Value {
    json!({"run": {"process": {"command": ["sh", "-c", script]}}})
}

pub fn shell(script: &str) -> Value {
    json!({"run": {"process": {"command": ["sh", "-c", script]}}, "sandbox": "none"})
}
