//! Start and ordered stop of a node.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use blobs::Blobs;
use engine::Fetch;
use model::id::{Epoch, NodeId, RunnerId, ShardId, Shards};
use model::limits::TASK_RESULT_BYTES_MAX;
use runner::StopMode;
use shard::Owner;
use store::{Embedded, ShardOwner, Store};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::api::{self, App, BlockingStore, Core};
use crate::clock;
use crate::cluster::{Cluster, ControlNode, Peers};
use crate::error::Error;
use crate::fetcher::{self, FetchSender};
use crate::inbox::{Inbox, InboxReceiver};
use crate::janitor;
use crate::local_runner::{self, LocalRunner};
use crate::node_control::NodeControl;
use crate::options::Options;
use crate::plans::Plans;
use crate::policy::PolicyChecks;
use crate::result_spill::ResultSpiller;
use crate::runner_node::Hardware;
use crate::runners::Runners;
use crate::scanning::{self, Scanning};
use crate::shard_count::shard_count;
use crate::shard_loop::{ROUND_BYTES_MAX, ShardContext, ShardLoop, Uplink};

/// Time for open connections to finish when the node stops.
const CONNECTION_DRAIN: Duration = Duration::from_secs(2);

/// Key file in the data directory.
const AUDIT_KEY: &str = "audit.key";

/// Address of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub listen: SocketAddr,
}

impl Address {
    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }
}

/// A running node.
pub struct Node {
    address: Address,
    app: Arc<App>,
    store: Arc<Embedded>,
    runner: runner::Handle,
    /// Absent until the node is ready.
    cluster: Option<Arc<Cluster>>,
    inboxes: Vec<Inbox>,
    threads: Vec<JoinHandle<()>>,
    failure: oneshot::Receiver<Error>,
    stopping: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
    /// Time limit for stopping attempts.
    stop_timeout: Duration,
}

/// State of the API that is not part of [`Node`].
struct ApiParts {
    shards: Shards,
    blobs: Blobs,
    policy: PolicyChecks,
    plans: Arc<Plans>,
    audit_key: Arc<signing::Key>,
    nodes: Arc<NodeControl>,
    cluster: Arc<Cluster>,
    hardware: Hardware,
}

/// Reports the first failure of any thread to the node.
#[derive(Clone)]
struct FailureReporter(Arc<parking_lot::Mutex<Option<oneshot::Sender<Error>>>>);

impl FailureReporter {
    fn report(&self, error: Error) {
        tracing::error!(%error, "a thread of the server failed; the server stops");
        if let Some(sender) = self.0.lock().take() {
            let _ = sender.send(error);
        }
    }
}

impl Node {
    /// Starts a node. Returns when it is ready: listening, shards rehydrated, runner started.
    pub async fn start(options: Options) -> Result<Self, Error> {
        options.check()?;
        let problem = |source| Error::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(problem)?;
        let address = Address { listen: listener.local_addr().map_err(problem)? };
        let (stopping, stop) = watch::channel(false);
        let app = Arc::new(App::new(&options, address.listen, stop.clone()));
        let serving = tokio::spawn(api::serve(listener, app.clone(), stop));

        let store = Arc::new(open_store(&options).await?);
        let audit_key = Arc::new(signing::Key::open(&options.data_dir.join(AUDIT_KEY))?);
        let blobs = open_blobs(&options).await?;
        let shards = shard_count(store.as_ref(), options.shards)?;
        let (inboxes, receivers): (Vec<Inbox>, Vec<InboxReceiver>) = shards.all().map(|_| Inbox::new()).unzip();
        let policy = PolicyChecks::open(&options, inboxes.clone())?;
        let nodes = open_node_control(&store, policy.clone(), inboxes.clone(), options.failing_rule()).await?;
        let scanning = Scanning::start(scanning::ScanContext {
            store: store.clone(),
            blobs: blobs.clone(),
            policy: policy.clone(),
        });
        let peers = Peers::default();
        let runner = start_runner(&options, &store, shards, &blobs, &inboxes, peers.clone()).await?;
        let (failures, failure) = failure_channel();
        let (fetches, fetch_requests) = FetchSender::new();
        let plans: Arc<Plans> = Arc::default();
        let shared = options.wrap_store(store.clone());
        let mut threads =
            vec![start_fetcher(fetch_requests, shared.clone(), plans.clone(), &inboxes, failures.clone())?];
        let mut ready = Vec::new();
        let mut jitter_key = [0; 32];
        getrandom::fill(&mut jitter_key).map_err(|error| Error::Io(std::io::Error::other(error)))?;
        for (id, inbox) in shards.all().zip(receivers) {
            let (ready_sender, is_ready) = oneshot::channel();
            let context = ShardContext {
                store: shared.clone(),
                inbox,
                runners: Runners::new(RunnerId(store.node().0), runner.clone(), peers.clone()),
                fetches: fetches.clone(),
                policy: policy.clone(),
                peers: inboxes.clone(),
                scanning: scanning.clone(),
                spiller: ResultSpiller {
                    blobs: blobs.clone(),
                    tasks: tokio::runtime::Handle::current(),
                    inbox: inboxes[usize::from(id.0)].clone(),
                },
                audit_key: audit_key.clone(),
            };
            let start = ShardStart {
                config: options.engine(id, shards, jitter_key),
                node: store.node(),
                plans: plans.clone(),
                context,
                stopping: stopping.subscribe(),
                ready: ready_sender,
            };
            threads.push(start_shard(id, start, failures.clone())?);
            ready.push(is_ready);
        }
        drop(fetches);
        let stop_timeout = Duration::from_millis(options.stop_grace_ms) + CONNECTION_DRAIN * 5;
        let cluster = ControlNode {
            node: store.node(),
            incarnation: store.incarnation(),
            data_dir: options.data_dir.clone(),
            options: options.cluster.clone(),
            shards,
            inboxes: inboxes.clone(),
            blobs: blobs.clone(),
            peers,
            control: nodes.clone(),
            store: store.clone(),
        };
        let mut node = Self {
            address,
            app,
            store,
            runner,
            cluster: None,
            inboxes,
            threads,
            failure,
            stopping,
            serving,
            stop_timeout,
        };
        for is_ready in ready {
            if is_ready.await.is_err() {
                return Err(node.failed().await);
            }
        }
        let hardware = detect_hardware().await?;
        // Nodes connect only now: their frames find a shard.
        let cluster = Cluster::open(cluster).await?;
        node.cluster = Some(cluster.clone());
        node.open_api(&options, ApiParts { shards, blobs, policy, plans, audit_key, nodes, cluster, hardware });
        Ok(node)
    }

    fn open_api(&self, options: &Options, parts: ApiParts) {
        let ApiParts { shards, blobs, policy, plans, audit_key, nodes, cluster, hardware } = parts;
        let (sender, commits) = watch::channel(());
        self.store.on_commit(Box::new(move || {
            sender.send_replace(());
        }));
        let core = Core {
            store: BlockingStore::new(self.store.clone()),
            shards,
            inboxes: self.inboxes.clone(),
            logs: options.data_dir.join("logs"),
            blobs: blobs.clone(),
            runner: self.runner.clone(),
            node: self.store.node(),
            policy: policy.clone(),
            plans,
            audit_key,
            nodes: nodes.clone(),
            cluster: cluster.clone(),
            hardware,
            execution: options.execution(),
            data_dir: options.data_dir.clone(),
            commits,
        };
        tokio::spawn(policy.reload_periodically(self.stopping.subscribe()));
        tokio::spawn(nodes.enforce(cluster, self.stopping.subscribe()));
        self.app.open(core);
        tokio::spawn(janitor::run_janitor(janitor::Janitor {
            store: Arc::downgrade(&(self.store.clone() as Arc<dyn Store>)),
            shards,
            logs: options.data_dir.join("logs"),
            blobs,
            interval: Duration::from_millis(options.collect_interval_ms),
            stopping: self.stopping.subscribe(),
        }));
    }

    pub fn address(&self) -> Address {
        self.address
    }

    /// Resolves when a thread of the node has failed. The node cannot continue.
    pub async fn failed(&mut self) -> Error {
        match (&mut self.failure).await {
            Ok(error) => error,
            Err(_) => Error::Panicked("all threads ended without an error".to_owned()),
        }
    }

    /// Stops in order: no new requests, attempts stopped and reported, everything committed and applied to the tables.
    pub async fn stop(self, mode: StopMode) -> Result<(), Error> {
        self.stopping.send_replace(true);
        if tokio::time::timeout(self.stop_timeout, self.runner.stop(mode)).await.is_err() {
            // Safe: the attempts are on record, and the next start ends their processes.
            tracing::warn!("some attempts did not stop in time; their jobs run again after the next start");
            if mode == StopMode::StopProcesses {
                self.runner.stop_spawner();
            }
        }
        if let Some(cluster) = &self.cluster {
            cluster.stop().await;
        }
        self.inboxes.iter().for_each(Inbox::stop);
        let threads = self.threads;
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join())));
        joined.await.map_err(|error| Error::Panicked(error.to_string()))?;
        let _ = tokio::time::timeout(CONNECTION_DRAIN, self.serving).await;
        self.app.close();
        drop(self.cluster);
        let mut store = self.store;
        // Requests in progress may hold the store for a moment.
        for _ in 0..200 {
            match Arc::try_unwrap(store) {
                Ok(store) => return Ok(close(store).await?),
                Err(shared) => store = shared,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Safe without closing: the next start replays the journal.
        Ok(())
    }
}

async fn close(store: Embedded) -> Result<(), store::Error> {
    let closed = tokio::task::spawn_blocking(move || store.close()).await;
    closed.unwrap_or_else(|error| Err(store::Error::Stopped { reason: error.to_string() }))
}

fn failure_channel() -> (FailureReporter, oneshot::Receiver<Error>) {
    let (sender, receiver) = oneshot::channel();
    (FailureReporter(Arc::new(parking_lot::Mutex::new(Some(sender)))), receiver)
}

async fn open_store(options: &Options) -> Result<Embedded, Error> {
    let directory = options.data_dir.clone();
    let mut settings = store::Options::default();
    settings.journal.keep_bytes = options.events_keep_bytes;
    settings.journal.keep_for = Duration::from_millis(options.events_keep_ms);
    let opened = tokio::task::spawn_blocking(move || Embedded::open(&directory, settings)).await;
    Ok(opened.map_err(|error| Error::Panicked(error.to_string()))??)
}

async fn open_blobs(options: &Options) -> Result<Blobs, Error> {
    let mut settings = blobs::Options::new(options.blobs.location(&options.data_dir)?, options.data_dir.join("work"));
    settings.cache_bytes_max = options.cache_bytes_max;
    settings.grace = Duration::from_millis(options.collect_grace_ms);
    Ok(Blobs::open(settings).await?)
}

async fn detect_hardware() -> Result<Hardware, Error> {
    tokio::task::spawn_blocking(Hardware::detect).await.map_err(|error| Error::Panicked(error.to_string()))
}

async fn open_node_control(
    store: &Arc<Embedded>,
    policy: PolicyChecks,
    inboxes: Vec<Inbox>,
    rule: engine::FailingRule,
) -> Result<Arc<NodeControl>, Error> {
    let (store, own) = (store.clone(), (store.node(), store.incarnation()));
    let opened = tokio::task::spawn_blocking(move || NodeControl::open(store, policy, inboxes, own, rule)).await;
    Ok(Arc::new(opened.map_err(|error| Error::Panicked(error.to_string()))??))
}

/// Starts the runner of this node.
async fn start_runner(
    options: &Options,
    store: &Embedded,
    shards: Shards,
    blobs: &Blobs,
    inboxes: &[Inbox],
    peers: Peers,
) -> Result<runner::Handle, Error> {
    let (node, incarnation) = (store.node(), store.incarnation());
    let local = LocalRunner { node, incarnation, shards, data_dir: &options.data_dir, blobs, outbox_bytes_max: None };
    let uplink = Arc::new(Uplink { runner: RunnerId(node.0), inboxes: inboxes.to_vec(), peers });
    local_runner::start(&options.execution(), local, uplink).await
}

fn start_fetcher(
    requests: mpsc::Receiver<(ShardId, Epoch, Fetch)>,
    store: Arc<dyn Store>,
    plans: Arc<Plans>,
    inboxes: &[Inbox],
    failures: FailureReporter,
) -> Result<JoinHandle<()>, Error> {
    let inboxes = inboxes.to_vec();
    start_thread("fetcher".to_owned(), failures, move || {
        fetcher::run(&requests, store.as_ref(), &plans, &inboxes);
        Ok(())
    })
}

/// Arguments of a shard's thread.
struct ShardStart {
    config: engine::Config,
    node: NodeId,
    plans: Arc<Plans>,
    context: ShardContext,
    stopping: watch::Receiver<bool>,
    ready: oneshot::Sender<()>,
}

fn start_shard(id: ShardId, start: ShardStart, failures: FailureReporter) -> Result<JoinHandle<()>, Error> {
    start_thread(format!("shard-{id}"), failures, move || run_shard(id, start))
}

/// Starts a thread whose failure stops the node.
fn start_thread(
    name: String,
    failures: FailureReporter,
    body: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let own_name = name.clone();
    let guarded = move || {
        // A panic is a bug. It must stop the node instead of leaving it idle.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failures.report(error),
            Err(_) => failures.report(Error::Panicked(own_name)),
        }
    };
    Ok(thread::Builder::new().name(name).spawn(guarded)?)
}

/// Runs a shard until the node stops. After an error or a panic a new owner is rebuilt from the records. Only damage to
/// the store ends the shard, and with it the node.
fn run_shard(id: ShardId, start: ShardStart) -> Result<(), Error> {
    let ShardStart { config, node, plans, context, stopping, ready } = start;
    let mut ready = Some(ready);
    let mut restarts = Restarts::default();
    loop {
        let own = || run_owner(id, config, node, &plans, &context, &mut ready);
        let error = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(own)) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => Error::Panicked(format!("shard-{id}")),
        };
        // Before the first start the operator sees the error at once.
        if !error.is_transient() || ready.is_some() {
            return Err(error);
        }
        let delay = restarts.next(Instant::now());
        tracing::error!(shard = %id, %error, delay_ms = delay.as_millis() as u64, "a shard failed; it restarts from its records, other shards go on");
        context.inbox.set_down(error.to_string());
        if !sleep_unless_stopping(delay, &stopping) {
            return Ok(());
        }
    }
}

/// Becomes the owner of a shard, rebuilds it and runs it.
fn run_owner(
    id: ShardId,
    config: engine::Config,
    node: NodeId,
    plans: &Plans,
    context: &ShardContext,
    ready: &mut Option<oneshot::Sender<()>>,
) -> Result<(), Error> {
    let owner = ShardOwner { node, nonce: getrandom::u64().map_err(std::io::Error::other)? };
    let settings = context.policy.settings();
    let options = shard::Options {
        owner,
        config,
        settings,
        round_bytes_max: ROUND_BYTES_MAX,
        result_bytes_max: TASK_RESULT_BYTES_MAX,
    };
    let owner = Owner::open(context.store.as_ref(), plans, options, clock::read())?;
    let mut shard_loop = ShardLoop::new(id, owner, context);
    shard_loop.resume()?;
    context.inbox.set_up();
    if let Some(ready) = ready.take() {
        let _ = ready.send(());
    }
    shard_loop.run()
}

/// Delays between restarts of a shard: doubled with each failure, until it runs for a while.
#[derive(Debug, Default)]
struct Restarts {
    failures: u32,
    last: Option<Instant>,
}

impl Restarts {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(30);
    /// A shard that ran for this long starts with the first delay again.
    const STABLE: Duration = Duration::from_secs(60);

    fn next(&mut self, now: Instant) -> Duration {
        if self.last.is_none_or(|last| now.duration_since(last) > Self::STABLE) {
            self.failures = 0;
        }
        let delay = Self::FIRST.saturating_mul(1 << self.failures.min(16)).min(Self::LONGEST);
        self.failures += 1;
        self.last = Some(now + delay);
        delay
    }
}

/// Returns false as soon as the node stops.
fn sleep_unless_stopping(delay: Duration, stopping: &watch::Receiver<bool>) -> bool {
    const STEP: Duration = Duration::from_millis(20);
    let end = Instant::now() + delay;
    while Instant::now() < end {
        if *stopping.borrow() {
            return false;
        }
        thread::sleep(STEP.min(end.saturating_duration_since(Instant::now())));
    }
    !*stopping.borrow()
}

/// Runs a node until a signal or a failure. SIGINT (Ctrl-C) stops all processes. SIGTERM stops only the server, as for
/// an upgrade: processes continue under the next one.
pub fn run(options: Options, on_ready: impl FnOnce(&Address)) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let mut node = tokio::select! {
            node = Node::start(options) => node?,
            _ = terminate.recv() => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        on_ready(&node.address());
        let mode = tokio::select! {
            error = node.failed() => return Err(error),
            _ = terminate.recv() => StopMode::LeaveProcesses,
            _ = tokio::signal::ctrl_c() => StopMode::StopProcesses,
        };
        tokio::select! {
            stopped = node.stop(mode) => stopped,
            // A second signal stops at once. Everything acknowledged is durable.
            _ = terminate.recv() => Ok(()),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}
