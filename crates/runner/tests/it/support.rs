//! Fixture: a runner, and a recorder of its messages in place of shards.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blobs::Blobs;
use bytes::Bytes;
use model::id::{Attempt, Epoch, Incarnation, JobId, NodeId, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::message::{
    AttemptRef, Capacity, FromRunner, Load, Profile, ReportedAttempt, RunnerFrame, RunnerMessage, Session,
    ShardMessage, ToRunner,
};
use model::spec::JobSpec;
use model::time::Millis;
use model::verdict::Constraints;
use runner::{Defaults, Handle, Options, OutboxOptions, SpawnerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

pub const INCARNATION: Incarnation = Incarnation(3);
const SLOTS: Capacity = Capacity { process: 4, echo: 4, wasm: 0 };
pub const DEADLINE: Duration = Duration::from_secs(20);

struct Recorder(mpsc::UnboundedSender<(ShardId, FromRunner)>);

impl runner::Uplink for Recorder {
    fn deliver(&self, shard: ShardId, frame: RunnerFrame) {
        for message in frame.messages {
            // Fails after the end of the test.
            let _ = self.0.send((shard, message));
        }
    }

    fn load(&self, _: Incarnation, _: Load) {}
}

/// What distinguishes one start of a runner from another.
pub struct Setup {
    pub directory: TempDir,
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub capacity: Capacity,
    /// Limit of the durable outbox, if there is one.
    pub outbox_bytes: Option<u64>,
    pub memory_reserve_bytes: u64,
}

impl Setup {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            node: new_node(),
            incarnation: INCARNATION,
            capacity: SLOTS,
            outbox_bytes: None,
            memory_reserve_bytes: 0,
        }
    }

    pub fn outbox(&self) -> PathBuf {
        self.directory.path().join("outbox")
    }
}

/// Can be dropped in an async test.
struct OwnRuntime(Option<Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A runner with two shards and a small capacity.
pub struct Fixture {
    pub runner: Handle,
    /// A runner with an outbox has its own, which ends as in a crash.
    runtime: OwnRuntime,
    pub setup: Setup,
    received: mpsc::UnboundedReceiver<(ShardId, FromRunner)>,
    pub blobs: Blobs,
    requests: u64,
    /// Messages sent so far, by session.
    sent: RefCell<BTreeMap<(ShardId, Session), u64>>,
    /// Last sequence received from the runner, by shard.
    seen: BTreeMap<ShardId, u64>,
}

/// Message with its sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub sequence: u64,
    pub message: RunnerMessage,
}

impl Fixture {
    /// Returns after the registration with both shards.
    pub async fn new(capacity: Capacity) -> Self {
        let mut fixture = Self::start(Setup { capacity, ..Setup::new() }).await;
        for shard in [0, 1] {
            fixture.registered(shard, capacity, &[]).await;
        }
        fixture
    }

    pub async fn start(setup: Setup) -> Self {
        let options = options(&setup).await;
        let (sender, received) = mpsc::unbounded_channel();
        let blobs = options.blobs.clone();
        let runner = runner::start(options, Arc::new(Recorder(sender)));
        let runtime = setup.outbox_bytes.map(|_| {
            let builder = &mut tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).enable_all().build().unwrap()
        });
        let runner = match &runtime {
            Some(runtime) => runtime.spawn(runner).await.unwrap(),
            None => runner.await,
        };
        let (runner, runtime) = (runner.unwrap(), OwnRuntime(runtime));
        Self { runner, runtime, setup, received, blobs, requests: 100, sent: RefCell::default(), seen: BTreeMap::new() }
    }

    /// The next message is the registration with this shard.
    pub async fn registered(&mut self, shard: u16, capacity: Capacity, in_flight: &[AttemptRef]) {
        let (from, message) = self.next_message().await;
        let reported = |attempt_ref: &AttemptRef| ReportedAttempt { attempt_ref: *attempt_ref, running_for: None };
        let registration = RunnerMessage::Register {
            capacity,
            profile: Arc::new(Profile { keeps_leases: true, ..Profile::default() }),
            in_flight: in_flight.iter().map(reported).collect(),
            request: 0,
            oldest_kept: 1,
        };
        assert_eq!((from, message), (ShardId(shard), Received { sequence: 1, message: registration }));
    }

    /// Ends the runner as a crash of its process does; its spawner stays. Returns the setup of the next start.
    pub async fn crash(self) -> Setup {
        let Self { runner, runtime, setup, .. } = self;
        drop((runner, runtime));
        let is_closed = || match std::fs::File::open(setup.outbox()) {
            Ok(directory) => directory.try_lock().is_ok(),
            Err(_) => true,
        };
        wait_until("the outbox is closed", is_closed).await;
        Setup { incarnation: Incarnation(setup.incarnation.0 + 1), ..setup }
    }

    pub async fn with_slots() -> Self {
        Self::new(SLOTS).await
    }

    pub fn send(&self, message: ShardMessage) {
        self.send_as(ShardId(0), Epoch(5), message);
    }

    pub fn send_as(&self, shard: ShardId, epoch: Epoch, message: ShardMessage) {
        self.runner.send(shard, self.setup.incarnation, vec![self.envelope(shard, epoch, message)]);
    }

    pub fn send_raw(&self, message: ToRunner) {
        self.runner.send(ShardId(0), self.setup.incarnation, vec![message]);
    }

    /// The next message of a shard.
    pub fn envelope(&self, shard: ShardId, epoch: Epoch, message: ShardMessage) -> ToRunner {
        let session = Session { epoch, number: 1 };
        let mut sent = self.sent.borrow_mut();
        let sequence = sent.entry((shard, session)).or_default();
        *sequence += 1;
        ToRunner::Message { session, sequence: *sequence, heard: Millis(0), message }
    }

    pub fn commit(&self, sequence: u64) {
        let message = ToRunner::Committed { session: Session { epoch: Epoch(5), number: 1 }, sequence };
        self.runner.send(ShardId(0), self.setup.incarnation, vec![message]);
    }

    pub fn run(&self, attempt_ref: AttemptRef, job: &Value) {
        self.send(run_message(attempt_ref, job));
    }

    /// As `run`, with constraints of the policy.
    pub fn run_constrained(&self, attempt_ref: AttemptRef, job: &Value, constraints: Constraints) {
        let mut message = run_message(attempt_ref, job);
        if let ShardMessage::Run { constraints: of_run, .. } = &mut message {
            *of_run = Some(Box::new(constraints));
        }
        self.send(message);
    }

    /// The next message, new or retransmitted.
    async fn any_message(&mut self) -> (ShardId, Received) {
        let (shard, message) =
            tokio::time::timeout(DEADLINE, self.received.recv()).await.expect("no message from the runner").unwrap();
        assert_eq!((message.runner, message.incarnation), (RunnerId(7), self.setup.incarnation));
        (shard, Received { sequence: message.sequence, message: message.message })
    }

    /// The next new message.
    pub async fn next_message(&mut self) -> (ShardId, Received) {
        loop {
            let (shard, received) = self.any_message().await;
            let seen = self.seen.entry(shard).or_default();
            if received.sequence > *seen {
                *seen = received.sequence;
                return (shard, received);
            }
        }
    }

    /// The next message to the first shard.
    pub async fn message(&mut self) -> Received {
        let (shard, received) = self.next_message().await;
        assert_eq!(shard, ShardId(0));
        received
    }

    /// Waits until workspaces and logs of all attempts are removed.
    pub async fn wait_until_removed(&self) {
        let directory = self.setup.directory.path();
        let count = |directory: PathBuf| std::fs::read_dir(directory).map_or(0, |entries| entries.count());
        let logs = || std::fs::read_dir(directory.join("logs")).into_iter().flatten().flatten();
        while count(directory.join("scratch")) > 0 || logs().any(|entry| count(entry.path()) > 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn log(&self, attempt_ref: AttemptRef) -> PathBuf {
        runner::logs::path(&self.setup.directory.path().join("logs"), attempt_ref)
    }

    /// The next message that is neither the acceptance of an attempt nor a registration.
    async fn message_after_acceptance(&mut self) -> Received {
        loop {
            let received = self.message().await;
            if !matches!(received.message, RunnerMessage::Accepted { .. } | RunnerMessage::Register { .. }) {
                return received;
            }
        }
    }

    pub async fn started(&mut self, attempt_ref: AttemptRef) {
        let received = self.message_after_acceptance().await;
        assert_eq!(received.message, RunnerMessage::Started { attempt_ref, at: Millis(42) });
    }

    pub async fn ended(&mut self, attempt_ref: AttemptRef) -> Outcome {
        let received = self.message_after_acceptance().await;
        match received.message {
            RunnerMessage::Ended { attempt_ref: other, outcome, .. } if other == attempt_ref => *outcome,
            other => panic!("{other:?} instead of the end of {attempt_ref:?}"),
        }
    }

    pub async fn stopped(&mut self, attempt_ref: AttemptRef) {
        assert_eq!(self.ended(attempt_ref).await.end, End::Stopped);
    }

    /// Requests an inventory; returns the retransmitted messages and the inventory.
    pub async fn inventory(&mut self) -> (Vec<Received>, RunnerMessage) {
        self.requests += 1;
        self.send(ShardMessage::Inventory { request: self.requests });
        let mut retransmitted: Vec<Received> = Vec::new();
        loop {
            let (shard, received) = self.any_message().await;
            if shard != ShardId(0) {
                continue;
            }
            if retransmitted.last().is_some_and(|last| last.sequence >= received.sequence) {
                // Retransmitted because the time was up, and again on request.
                retransmitted.clear();
            }
            let seen = self.seen.entry(shard).or_default();
            *seen = received.sequence.max(*seen);
            if matches!(received.message, RunnerMessage::Register { request, .. } if request == self.requests) {
                return (retransmitted, received.message);
            }
            retransmitted.push(received);
        }
    }

    /// Commits all messages so far; returns the attempts in flight.
    pub async fn commit_all(&mut self) -> Vec<AttemptRef> {
        let (retransmitted, register) = self.inventory().await;
        let last = retransmitted.last().map_or(0, |received| received.sequence) + 1;
        self.commit(last);
        in_flight(&register)
    }
}

/// Waits for a condition, up to a deadline.
pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, holds).await.unwrap_or_else(|_| panic!("it never happened: {what}"));
}

async fn options(setup: &Setup) -> Options {
    let (directory, node) = (setup.directory.path(), setup.node);
    let location = blobs::Location::Directory(directory.join("blobs"));
    Options {
        id: RunnerId(7),
        incarnation: setup.incarnation,
        node,
        home: runner::HomeId::of(directory).unwrap(),
        capacity: setup.capacity,
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
        memory_reserve_bytes: setup.memory_reserve_bytes,
        blobs: Blobs::open(blobs::Options::new(location, directory.join("work"))).await.unwrap(),
        outbox: setup.outbox_bytes.map(|bytes_max| OutboxOptions { directory: setup.outbox(), bytes_max }),
        spawner: SpawnerOptions {
            options: spawner::Options {
                directories: spawner::Directories {
                    base: directory.join("sandbox"),
                    scratch: directory.join("scratch"),
                    workers: directory.join("work/cache/workers"),
                },
                node: node.to_string(),
                unclaimed_timeout: Duration::from_secs(5),
                unclaimed_idle_timeout: Duration::from_secs(1),
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

/// The attempts of a registration.
pub fn in_flight(register: &RunnerMessage) -> Vec<AttemptRef> {
    match register {
        RunnerMessage::Register { in_flight, .. } => in_flight.iter().map(|reported| reported.attempt_ref).collect(),
        other => panic!("{other:?}"),
    }
}

pub fn run_message(attempt_ref: AttemptRef, job: &Value) -> ShardMessage {
    ShardMessage::Run { attempt_ref, valid_for: Millis(u64::MAX), spec: spec(job), constraints: None, lease: None }
}

/// The spawner built beside the tests.
fn spawner_program() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let program = beside.parent().unwrap().parent().unwrap().join("outlast-spawner");
    assert!(program.exists(), "build it first: cargo build -p spawner --bin outlast-spawner");
    program
}

/// Orphans are found by their node id: parallel tests must not share one.
pub fn new_node() -> NodeId {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    NodeId(u64::from(std::process::id()) << 32 | COUNT.fetch_add(1, Ordering::Relaxed))
}

pub fn attempt_ref(job: u64) -> AttemptRef {
    AttemptRef { job: JobId(job), attempt: Attempt(1) }
}

pub fn spec(job: &Value) -> Bytes {
    let spec: JobSpec = serde_json::from_str(&job.to_string()).unwrap();
    spec.pack().bytes
}

pub fn echo() -> Value {
    json!({"run": {"echo": {"value": "hello"}}})
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
