//! Putting a node together, and taking it apart in order.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use blobs::Blobs;
use engine::Fetch;
use model::id::{RunnerId, ShardId, Shards};
use model::message::{Capacity, Profile};
use runner::Departure;
use store::{Embedded, Position, Store};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::api::{self, App, Core};
use crate::clock;
use crate::error::Error;
use crate::fetcher::{self, Fetches};
use crate::inbox::{Inbox, Message, Outlet};
use crate::keeping::Keeper;
use crate::options::Options;
use crate::plans::Plans;
use crate::policy::PolicyService;
use crate::rehydrate;
use crate::scanning::{self, Scanning};
use crate::shard::{Parts, ShardLoop, Uplink};
use crate::tidy;

/// How long open connections get to finish when the node stops.
const GOODBYE: Duration = Duration::from_secs(2);

/// A spawner with nothing in hand that nobody claims is not worth keeping.
const UNCLAIMED_IDLE: Duration = Duration::from_secs(2);

/// Where a node can be reached.
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
    inboxes: Vec<Inbox>,
    threads: Vec<JoinHandle<()>>,
    failure: oneshot::Receiver<Error>,
    stopping: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
    /// How long attempts get to stop.
    stop_patience: Duration,
}

/// What the API works with besides the node itself.
struct Doors {
    shards: Shards,
    blobs: Blobs,
    policy: PolicyService,
    plans: Arc<Plans>,
}

/// Tells the first failure of any part.
#[derive(Clone)]
struct Alarm(Arc<parking_lot::Mutex<Option<oneshot::Sender<Error>>>>);

impl Alarm {
    fn raise(&self, error: Error) {
        tracing::error!(%error, "a part of the server has stopped");
        if let Some(sender) = self.0.lock().take() {
            let _ = sender.send(error);
        }
    }
}

impl Node {
    /// Starts everything and returns when the node is ready: listening, rehydrated, with a runner.
    pub async fn start(options: Options) -> Result<Self, Error> {
        options.check()?;
        let problem = |source| Error::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(problem)?;
        let address = Address { listen: listener.local_addr().map_err(problem)? };
        let (stopping, stop) = watch::channel(false);
        let app = Arc::new(App::new(&options, address.listen, stop.clone()));
        let serving = tokio::spawn(api::serve(listener, app.clone(), stop));

        let store = Arc::new(open_store(&options).await?);
        let blobs = open_blobs(&options).await?;
        let shards = rehydrate::shard_count(store.as_ref(), store.node(), options.shards)?;
        let (inboxes, outlets): (Vec<Inbox>, Vec<Outlet>) = shards.all().map(|_| Inbox::new()).unzip();
        let policy = PolicyService::open(&options, inboxes.clone())?;
        let scanning =
            Scanning::start(scanning::Parts { store: store.clone(), blobs: blobs.clone(), policy: policy.clone() });
        let runner = start_runner(&options, &store, shards, &blobs, &inboxes).await?;
        let (alarm, failure) = alarm();
        let (fetches, questions) = Fetches::new();
        let plans: Arc<Plans> = Arc::default();
        let mut threads = vec![start_fetcher(questions, store.clone(), plans.clone(), &inboxes, alarm.clone())?];
        let mut ready = Vec::new();
        let mut jitter_key = [0; 32];
        getrandom::fill(&mut jitter_key).map_err(|error| Error::Io(std::io::Error::other(error)))?;
        for (id, outlet) in shards.all().zip(outlets) {
            let (tell_ready, is_ready) = oneshot::channel();
            let start = ShardStart {
                config: options.engine(id, shards, jitter_key),
                policy: policy.clone(),
                scanning: scanning.clone(),
                plans: plans.clone(),
                keeper: Keeper {
                    blobs: blobs.clone(),
                    tasks: tokio::runtime::Handle::current(),
                    inbox: inboxes[usize::from(id.0)].clone(),
                },
                store: store.clone(),
                outlet,
                runner: runner.clone(),
                fetches: fetches.clone(),
                ready: tell_ready,
            };
            threads.push(start_shard(id, start, alarm.clone())?);
            ready.push(is_ready);
        }
        drop(fetches);
        let stop_patience = Duration::from_millis(options.stop_grace_ms) + GOODBYE * 5;
        let mut node =
            Self { address, app, store, runner, inboxes, threads, failure, stopping, serving, stop_patience };
        for is_ready in ready {
            if is_ready.await.is_err() {
                return Err(node.failed().await);
            }
        }
        node.open_doors(&options, Doors { shards, blobs, policy, plans });
        Ok(node)
    }

    fn open_doors(&self, options: &Options, doors: Doors) {
        let Doors { shards, blobs, policy, plans } = doors;
        let (tell, commits) = watch::channel(self.store.durable());
        self.store.on_commit(Box::new(move |position: Position| {
            tell.send_replace(position);
        }));
        let core = Core {
            store: self.store.clone(),
            shards,
            inboxes: self.inboxes.clone(),
            logs: options.data_dir.join("logs"),
            blobs: blobs.clone(),
            runner: self.runner.clone(),
            node: self.store.node(),
            policy: policy.clone(),
            plans,
            commits,
        };
        tokio::spawn(policy.keep_reloading(self.stopping.subscribe()));
        self.app.open(core);
        tokio::spawn(tidy::keep_tidy(tidy::House {
            store: Arc::downgrade(&self.store),
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

    /// Resolves when a part of the node has failed: it cannot go on.
    pub async fn failed(&mut self) -> Error {
        match (&mut self.failure).await {
            Ok(error) => error,
            Err(_) => Error::Panicked("all of them, without a word".to_owned()),
        }
    }

    /// Stops in order: no new requests, attempts stopped and reported, everything committed and in the tables.
    pub async fn stop(self, departure: Departure) -> Result<(), Error> {
        self.stopping.send_replace(true);
        if tokio::time::timeout(self.stop_patience, self.runner.stop(departure)).await.is_err() {
            // Not waiting is safe: what they were is in the records, and the next start ends what is left of them.
            tracing::warn!("some attempts do not stop; their jobs begin again with the next start");
            if departure == Departure::EndProcesses {
                self.runner.end_spawner();
            }
        }
        for inbox in &self.inboxes {
            let _ = inbox.post(Message::Stop);
        }
        let threads = self.threads;
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join())));
        joined.await.map_err(|error| Error::Panicked(error.to_string()))?;
        let _ = tokio::time::timeout(GOODBYE, self.serving).await;
        self.app.close();
        let mut store = self.store;
        // Requests that are still being answered may hold on to the store for a moment.
        for _ in 0..200 {
            match Arc::try_unwrap(store) {
                Ok(store) => return Ok(close(store).await?),
                Err(shared) => store = shared,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Not closing is safe: the next start replays the journal.
        Ok(())
    }
}

async fn close(store: Embedded) -> Result<(), store::Error> {
    let closed = tokio::task::spawn_blocking(move || store.close()).await;
    closed.unwrap_or_else(|error| Err(store::Error::Stopped { reason: error.to_string() }))
}

fn alarm() -> (Alarm, oneshot::Receiver<Error>) {
    let (sender, receiver) = oneshot::channel();
    (Alarm(Arc::new(parking_lot::Mutex::new(Some(sender)))), receiver)
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

async fn start_runner(
    options: &Options,
    store: &Embedded,
    shards: Shards,
    blobs: &Blobs,
    inboxes: &[Inbox],
) -> Result<runner::Handle, Error> {
    let count = u32::from(shards.count());
    // The spawner has its own idea of the current directory.
    let data = std::path::absolute(&options.data_dir)?;
    let places = spawner::Places {
        base: data.join("sandbox"),
        scratch: data.join("scratch"),
        workers: data.join("work/cache/workers"),
    };
    let mut wasm = wasm::Options::new(data.join("wasm"));
    wasm.slots = options.wasm_threads();
    let runner_options = runner::Options {
        id: RunnerId(store.node().0),
        incarnation: store.incarnation(),
        node: store.node(),
        // Each shard gets its part of the room, and at least some.
        capacity: Capacity {
            process: (options.process_slots() / count).max(1),
            echo: (options.echo_slots / count).max(1),
            wasm: (options.wasm_slots / count).max(1),
        },
        profile: Arc::new(Profile {
            pools: options.runner.pools.clone(),
            capabilities: options.runner.capabilities.clone(),
            labels: options.runner.labels.clone(),
        }),
        shards,
        logs: data.join("logs"),
        scratch: places.scratch.clone(),
        stop_grace: Duration::from_millis(options.stop_grace_ms),
        defaults: runner::Defaults {
            processes: options.job_processes_max,
            output_bytes: options.job_output_bytes_max,
            log_bytes: options.log_bytes_max,
            tmp_bytes: options.job_tmp_bytes_max,
            network_topics: options.network_topics.clone(),
            allow_unsandboxed: options.allow_unsandboxed,
        },
        memory_reserve_bytes: options.memory_reserve_bytes(),
        blobs: blobs.clone(),
        spawner: runner::SpawnerOptions {
            options: spawner::Options {
                places,
                node: store.node().to_string(),
                unclaimed: Duration::from_millis(options.unclaimed_ms),
                unclaimed_idle: UNCLAIMED_IDLE,
                first_user: options.sandbox_first_user,
                quit: false,
            },
            program: options.spawner_program(),
            socket: data.join("spawner.sock"),
            log: data.join("spawner.log"),
        },
        wasm,
        now: clock::now,
    };
    let uplink = Arc::new(Uplink { runner: RunnerId(store.node().0), inboxes: inboxes.to_vec() });
    runner::start(runner_options, uplink).await.map_err(Error::Spawner)
}

fn start_fetcher(
    questions: mpsc::Receiver<(ShardId, Fetch)>,
    store: Arc<Embedded>,
    plans: Arc<Plans>,
    inboxes: &[Inbox],
    alarm: Alarm,
) -> Result<JoinHandle<()>, Error> {
    let inboxes = inboxes.to_vec();
    let body = move || {
        let store: Arc<dyn Store> = store;
        fetcher::run(&questions, &store, &plans, &inboxes)
    };
    start_thread("fetcher".to_owned(), alarm, body)
}

/// What a shard's thread begins with.
struct ShardStart {
    config: engine::Config,
    store: Arc<Embedded>,
    outlet: Outlet,
    runner: runner::Handle,
    fetches: Fetches,
    policy: PolicyService,
    scanning: Scanning,
    plans: Arc<Plans>,
    keeper: Keeper,
    ready: oneshot::Sender<()>,
}

fn start_shard(id: ShardId, start: ShardStart, alarm: Alarm) -> Result<JoinHandle<()>, Error> {
    start_thread(format!("shard-{id}"), alarm, move || live(id, start))
}

/// A thread without which the node cannot go on.
fn start_thread(
    name: String,
    alarm: Alarm,
    body: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let own_name = name.clone();
    let guarded = move || {
        // A panic is a bug; it must not leave a node that looks alive and does nothing.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => alarm.raise(error),
            Err(_) => alarm.raise(Error::Panicked(own_name)),
        }
    };
    Ok(thread::Builder::new().name(name).spawn(guarded)?)
}

fn live(id: ShardId, start: ShardStart) -> Result<(), Error> {
    let ShardStart { config, store, outlet, runner, fetches, policy, scanning, plans, keeper, ready } = start;
    let (shard, step) = rehydrate::rehydrate(store.as_ref(), store.node(), config, policy.setup(), &plans)?;
    let parts = Parts { id, shard, step, store, outlet, runner, fetches, policy, scanning, keeper };
    let mut shard_loop = ShardLoop::new(parts);
    shard_loop.resume()?;
    let _ = ready.send(());
    shard_loop.run()
}

/// Runs a node until it is told to stop or cannot go on. Whoever types Ctrl-C (SIGINT) wants everything to end; whoever
/// sends SIGTERM replaces the server, and its processes go on under the next one.
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
        let departure = tokio::select! {
            error = node.failed() => return Err(error),
            _ = terminate.recv() => Departure::LeaveProcesses,
            _ = tokio::signal::ctrl_c() => Departure::EndProcesses,
        };
        tokio::select! {
            stopped = node.stop(departure) => stopped,
            // Whoever asks twice does not want to wait. Everything that was acknowledged is safe.
            _ = terminate.recv() => Ok(()),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}
