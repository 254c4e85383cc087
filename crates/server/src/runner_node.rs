//! A runner node: runs attempts for the shards of a control node.
//!
//! It needs outgoing connections only, and UDP for probes. What it has in flight survives the absence of the control node:
//! processes run on, results wait, and both sides reconcile when they are connected again.

mod answers;
mod control_link;
mod memory;
mod options;
mod report;
mod tethers;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blobs::{Blobs, PeerRetry};
use fabric::{Driver, DriverOptions, Keyring};
use model::codec;
use model::envelope::{FromNode, ToNode};
use model::id::{Incarnation, NodeId, Shards};
use parking_lot::Mutex;
use runner::StopMode;
use store::DataDirectory;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use transport::token::Token;
use transport::{
    Client, ClientOptions, ConnectError, Connected, Hello, Identity, JoinOptions, Joiner, LinkEvent, PROTOCOL,
    PendingKey, ProcessNonce, RefusalKind, Requests, Sender, connect_loop, join,
};

use crate::clock;
use crate::cluster::{self, RemoteObjects};
use crate::error::Error;
use crate::local_runner::{self, LocalRunner};
use crate::options::CLUSTER_PORT;

pub(crate) use answers::{READ_LOG, ReadLog, SAMPLE};
pub(crate) use control_link::ControlLink;
pub use options::RunnerNodeOptions;
pub(crate) use options::machine_name;
pub(crate) use report::Hardware;

use answers::NodeAnswers;
use memory::Memory;

/// Interval of reports and of the usage of processes.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait between attempts to connect.
const RECONNECT_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Interval of looking for a certificate to renew.
const RENEW_INTERVAL: Duration = Duration::from_secs(60);
/// Time for the last messages to be sent when the node stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// What a runner node tells its operator.
#[derive(Debug, Clone)]
pub enum RunnerNodeEvent {
    /// The node has become a member of the cluster.
    Joined {
        node: NodeId,
        cluster: String,
    },
    Connected {
        node: NodeId,
        address: String,
    },
    Disconnected {
        reason: String,
    },
    /// No control node can be reached. One reason for each address.
    Unreachable {
        reasons: Vec<String>,
    },
}

/// Receives events for the operator.
pub type OnEvent = Arc<dyn Fn(RunnerNodeEvent) + Send + Sync>;

/// A running runner node.
pub struct RunnerNode {
    state: Arc<State>,
    runner: runner::Handle,
    tasks: Vec<JoinHandle<()>>,
    stop_timeout: Duration,
    /// Locked while the node runs.
    _directory: DataDirectory,
}

/// What the tasks share.
struct State {
    node: NodeId,
    incarnation: Incarnation,
    options: RunnerNodeOptions,
    /// Directory of the cluster's files.
    directory: PathBuf,
    identity: Identity,
    link: ControlLink,
    /// Absent until it is started.
    runner: Arc<watch::Sender<Option<runner::Handle>>>,
    shards: watch::Sender<Option<Shards>>,
    membership: Mutex<Option<Driver>>,
    /// The control node has lost the tether of this node.
    tether_lost: Notify,
    /// Why the control node refuses this node for good.
    removed: watch::Sender<Option<String>>,
    on_event: OnEvent,
}

impl RunnerNode {
    /// Joins the cluster if the data directory has not joined one, and starts. Returns when attempts can be run: at the
    /// first start that takes a connection to the control node.
    pub async fn start(options: RunnerNodeOptions, on_event: OnEvent) -> Result<Self, Error> {
        let data_dir = options.data_dir.clone();
        let directory = blocking(move || Ok(DataDirectory::open(&data_dir)?)).await?;
        let (node, incarnation) = (directory.node(), directory.incarnation());
        let cluster_directory = options.data_dir.join(cluster::DIRECTORY);
        std::fs::create_dir_all(&cluster_directory)?;
        let mut memory = Memory::read(&cluster_directory);
        if !options.control.is_empty() {
            memory.control.clone_from(&options.control);
        }
        if memory.control.is_empty() {
            return Err(Error::Cluster(
                "no control node is known: give its address, as in `outlast join --token TOKEN HOST:7071`".to_owned(),
            ));
        }
        let identity = open_identity(&options, node, &cluster_directory, &memory.control, &on_event).await?;
        memory.write(&cluster_directory)?;
        let known_shards = memory.shards.and_then(Shards::new);
        let state = Arc::new(State {
            node,
            incarnation,
            directory: cluster_directory,
            identity: identity.clone(),
            link: ControlLink::default(),
            runner: Arc::new(watch::Sender::new(None)),
            shards: watch::Sender::new(known_shards),
            membership: Mutex::default(),
            tether_lost: Notify::new(),
            removed: watch::Sender::new(None),
            on_event,
            options,
        });
        let mut tasks = state.connect(identity, memory)?;
        let mut shards = state.shards.subscribe();
        let shards = *shards.wait_for(Option::is_some).await.map_err(|error| Error::Panicked(error.to_string()))?;
        let Some(shards) = shards else { return Err(Error::Panicked("the connection ended".to_owned())) };
        let runner = state.start_runner(shards).await?;
        state.runner.send_replace(Some(runner.clone()));
        tasks.push(tokio::spawn(report_periodically(state.clone(), runner.clone(), shards).await?));
        tasks.push(tokio::spawn(renew_periodically(state.clone())));
        let stop_timeout = Duration::from_millis(state.options.stop_grace_ms) + 5 * FLUSH_TIMEOUT;
        Ok(Self { state, runner, tasks, stop_timeout, _directory: directory })
    }

    pub fn node(&self) -> NodeId {
        self.state.node
    }

    /// Resolves with the reason when the node was removed from its cluster. Nobody wants its attempts any more.
    pub async fn removed(&self) -> String {
        let mut removed = self.state.removed.subscribe();
        match removed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops. Processes end, or go on without this process until the next one adopts them.
    pub async fn stop(self, mode: StopMode) {
        let state = &self.state;
        state.link.send(&FromNode::Leaving { keeps_processes: mode == StopMode::LeaveProcesses });
        if tokio::time::timeout(self.stop_timeout, self.runner.stop(mode)).await.is_err() {
            tracing::warn!("some attempts did not stop in time");
            if mode == StopMode::StopProcesses {
                self.runner.stop_spawner();
            }
        }
        if let Some(sender) = state.link.close() {
            let _ = tokio::time::timeout(FLUSH_TIMEOUT, sender.flushed()).await;
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        let membership = state.membership.lock().take();
        let ended = tokio::task::spawn_blocking(move || match (membership, mode) {
            (Some(membership), StopMode::StopProcesses) => membership.leave(),
            // Falls silent: its next process continues.
            (membership, _) => drop(membership),
        });
        let _ = ended.await;
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Panicked(error.to_string()))?
}

/// The identity in the data directory, or a new one by joining.
async fn open_identity(
    options: &RunnerNodeOptions,
    node: NodeId,
    directory: &Path,
    control: &[String],
    on_event: &OnEvent,
) -> Result<Identity, Error> {
    let token = match &options.token {
        Some(text) => Some(text.parse::<Token>().map_err(|error| Error::Cluster(error.to_string()))?),
        None => None,
    };
    let known = Identity::open(directory)?;
    match (known, token) {
        (Some(identity), Some(token)) if identity.authority_fingerprint()? != token.authority() => {
            Err(Error::Cluster(format!(
                "the join token is for another cluster than {}, to which this data directory belongs: \
                 use another data directory",
                identity.node().cluster
            )))
        }
        (Some(identity), Some(token)) if identity.validity().until <= clock::now() => {
            tracing::warn!("the certificate of this node has expired; it joins again");
            let joined = join_cluster(options, node, directory, control, &token, on_event).await;
            joined.map_err(|error| Error::Cluster(format!("{}: {error}", expired(&identity))))
        }
        (Some(identity), None) if identity.validity().until <= clock::now() => Err(Error::Cluster(expired(&identity))),
        (Some(identity), _) => Ok(identity),
        (None, None) => Err(Error::Cluster(
            "this data directory has not joined a cluster: create a token with `outlast nodes join-token` \
             on the control node, and give it with --token"
                .to_owned(),
        )),
        (None, Some(token)) => join_cluster(options, node, directory, control, &token, on_event).await,
    }
}

/// What to do about an expired certificate. The control node does not accept it, so it cannot be renewed.
fn expired(identity: &Identity) -> String {
    let (node, until) = (identity.node().node, model::time::Timestamp(identity.validity().until));
    format!(
        "the certificate of this node expired at {until}. On the control node, remove the node with \
         `outlast nodes rm {node}` and create a token with `outlast nodes join-token`; then start this node again with \
         --token. Its data directory can stay"
    )
}

async fn join_cluster(
    options: &RunnerNodeOptions,
    node: NodeId,
    directory: &Path,
    control: &[String],
    token: &Token,
    on_event: &OnEvent,
) -> Result<Identity, Error> {
    let key = PendingKey::open_or_generate(directory)?;
    let joiner = Joiner {
        node,
        name: options.name(),
        software_version: env!("CARGO_PKG_VERSION").to_owned(),
        addresses: Vec::new(),
    };
    let credentials = join(control, token, &joiner, &key, &JoinOptions::default()).await?;
    let identity = Identity::create(directory, key, credentials)?;
    on_event(RunnerNodeEvent::Joined { node, cluster: identity.node().cluster.to_string() });
    Ok(identity)
}

impl State {
    /// Starts to connect to the control nodes.
    fn connect(self: &Arc<Self>, identity: Identity, memory: Memory) -> Result<Vec<JoinHandle<()>>, Error> {
        // A restarted control node has its nodes back within a second or two.
        let options = ClientOptions { backoff_max: RECONNECT_INTERVAL_MAX, ..ClientOptions::default() };
        let client = Client::new(identity, options)?;
        let hello = Hello {
            protocol: PROTOCOL,
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node,
            incarnation: self.incarnation,
            process: ProcessNonce::random()?,
        };
        let answers = NodeAnswers {
            logs: std::path::absolute(&self.options.data_dir)?.join("logs"),
            runner: self.runner.clone(),
            link: self.link.clone(),
        };
        let (events, received) = mpsc::channel(1);
        let control = memory.control.clone();
        let connecting = tokio::spawn(connect_loop(client, control, hello, Arc::new(answers), events));
        let following = tokio::spawn(follow(self.clone(), memory, received));
        Ok(vec![connecting, following])
    }

    async fn start_runner(&self, shards: Shards) -> Result<runner::Handle, Error> {
        let objects = Arc::new(RemoteObjects::new(self.link.clone()));
        let mut settings = blobs::Options::new(blobs::Location::Peer(objects), self.options.data_dir.join("work"));
        settings.cache_bytes_max = self.options.cache_bytes_max;
        // The control node may be away for hours. What has been computed is not given up for that.
        settings.peer_retry = PeerRetry { attempts_max: u32::MAX, ..PeerRetry::default() };
        let blobs = Blobs::open(settings).await?;
        let local = LocalRunner {
            node: self.node,
            incarnation: self.incarnation,
            shards,
            data_dir: &self.options.data_dir,
            blobs: &blobs,
            outbox_bytes_max: Some(self.options.outbox_bytes_max),
        };
        local_runner::start(&self.options.execution(), local, Arc::new(self.link.clone())).await
    }

    fn take_envelope(&self, envelope: &[u8], memory: &mut Memory) {
        match codec::decode::<ToNode>(envelope) {
            Ok(ToNode::Welcome(welcome)) => self.welcome(welcome.shards(), memory),
            Ok(ToNode::Messages { shard, messages }) => {
                let runner = self.runner.borrow().clone();
                if let Some(runner) = runner {
                    runner.send(shard, self.incarnation, messages);
                }
            }
            Ok(ToNode::OpenTether) => self.tether_lost.notify_one(),
            // Of a later version, or damaged.
            Err(error) => tracing::warn!(%error, "an envelope of the control node was ignored"),
        }
    }

    fn welcome(&self, shards: Option<Shards>, memory: &mut Memory) {
        let Some(shards) = shards else {
            return tracing::error!("the control node names an invalid number of shards");
        };
        match *self.shards.borrow() {
            Some(known) if known == shards => return,
            Some(known) => {
                return tracing::error!(
                    known = known.count(),
                    found = shards.count(),
                    "the number of shards of the cluster has changed: stop this node and start it again"
                );
            }
            None => {}
        }
        memory.shards = Some(shards.count());
        if let Err(error) = memory.write(&self.directory) {
            tracing::warn!(%error, "this node cannot start without its control node: the data directory cannot be written");
        }
        self.shards.send_replace(Some(shards));
    }

    /// Keeps a tether to a control node while the link to it is open.
    async fn keep_tether(self: Arc<Self>, link: Sender, requests: Requests, address: String) {
        let mut started = self.runner.subscribe();
        let runner = tokio::select! {
            started = started.wait_for(Option::is_some) => started.ok().and_then(|runner| runner.clone()),
            _ = link.closed() => None,
        };
        if let Some(runner) = runner {
            tethers::keep(runner, self.incarnation, link, requests, address, &self.tether_lost).await;
        }
    }

    /// Starts the membership at the first connection; later it learns the address of the control node.
    async fn join_membership(self: Arc<Self>, control: String) {
        let Ok(found) = tokio::net::lookup_host(&control).await else { return };
        let addresses: Vec<SocketAddr> = found.collect();
        let started = tokio::task::spawn_blocking(move || self.start_membership(addresses)).await;
        match started {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "this node cannot be probed; a hung node is found later than usual")
            }
            Err(error) => tracing::error!(%error, "this node cannot be probed"),
        }
    }

    fn start_membership(&self, control: Vec<SocketAddr>) -> Result<(), Error> {
        let mut membership = self.membership.lock();
        if let Some(membership) = membership.as_ref() {
            // Overloaded: the next connection tries again.
            let _ = membership.handle().join(control);
            return Ok(());
        }
        let towards = control.first().copied().and_then(cluster::local_address_towards);
        let ip = self.options.advertise.or(towards).unwrap_or(Ipv4Addr::LOCALHOST.into());
        let authority = &self.identity;
        let options = |bind: SocketAddr| DriverOptions {
            node: self.node,
            incarnation: self.incarnation,
            role: fabric::Role::Runner,
            profile: self.options.profile.timings(),
            bind,
            advertise: SocketAddr::new(ip, 0),
            join: control.clone(),
            keyring: Keyring {
                cluster: fabric::ClusterId(*authority.node().cluster.as_bytes()),
                seal_with: fabric::ClusterKey::new(*authority.cluster_key().as_bytes()),
                also_accept: None,
            },
        };
        let any = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let on_event = |event| tracing::debug!(?event, "membership");
        let started = match self.options.listen {
            Some(listen) => Driver::start(options(listen), on_event)?,
            None => Driver::start(options(any(CLUSTER_PORT)), on_event)
                .or_else(|_| Driver::start(options(any(0)), on_event))?,
        };
        *membership = Some(started);
        Ok(())
    }
}

/// Serves one link after the other.
async fn follow(state: Arc<State>, mut memory: Memory, mut events: mpsc::Receiver<LinkEvent>) {
    while let Some(event) = events.recv().await {
        match event {
            LinkEvent::Up(connected) => {
                let Connected { address, sender, mut receiver, requests, .. } = *connected;
                state.link.set(sender.clone(), requests.clone());
                tokio::spawn(state.clone().keep_tether(sender, requests, address.clone()));
                (state.on_event)(RunnerNodeEvent::Connected { node: state.node, address: address.clone() });
                tokio::spawn(state.clone().join_membership(address));
                while let Ok(envelope) = receiver.recv().await {
                    state.take_envelope(&envelope, &mut memory);
                }
                state.link.clear();
            }
            LinkEvent::Down { reason, .. } => {
                (state.on_event)(RunnerNodeEvent::Disconnected { reason: reason.to_string() });
            }
            LinkEvent::Unreachable { errors, .. } => {
                let is_removal = |error: &&ConnectError| matches!(error, ConnectError::Refused(refusal) if refusal.kind() == RefusalKind::NotAllowed);
                if let Some(refused) = errors.iter().find(is_removal) {
                    state.removed.send_replace(Some(refused.to_string()));
                }
                let mut reasons: Vec<String> = errors.iter().map(ConnectError::to_string).collect();
                if state.identity.validity().until <= clock::now() {
                    reasons.insert(0, expired(&state.identity));
                }
                (state.on_event)(RunnerNodeEvent::Unreachable { reasons });
            }
        }
    }
}

/// Reports the node and the usage of its processes, every second if something has changed.
async fn report_periodically(
    state: Arc<State>,
    runner: runner::Handle,
    shards: Shards,
) -> Result<impl Future<Output = ()>, Error> {
    let hardware = blocking(|| Ok(Hardware::detect())).await?;
    let execution = state.options.execution();
    let per_shard = local_runner::capacity(&execution, shards);
    let count = u32::from(shards.count());
    let slots = model::message::Capacity {
        process: per_shard.process * count,
        echo: per_shard.echo * count,
        wasm: per_shard.wasm * count,
    };
    Ok(async move {
        let (name, profile) = (state.options.name(), local_runner::profile(&execution));
        let (mut reported, mut reported_to, mut had_usage) = (None, None, false);
        loop {
            let report = hardware.report(&name, &state.options.data_dir, slots, profile.clone(), &runner);
            let link = state.link.number();
            if (reported.as_ref() != Some(&report) || link != reported_to)
                && state.link.send(&FromNode::Report(Box::new(report.clone())))
            {
                (reported, reported_to) = (Some(report), link);
            }
            let usage = report::usage(&runner);
            if had_usage || !usage.is_empty() {
                had_usage = !usage.is_empty();
                state.link.send(&FromNode::Usage(usage));
            }
            tokio::time::sleep(REPORT_INTERVAL).await;
        }
    })
}

/// Renews the certificate of the node before it expires.
async fn renew_periodically(state: Arc<State>) {
    loop {
        if state.identity.needs_renewal(clock::now())
            && let Some(requests) = state.link.requests()
        {
            match requests.renew().await {
                Ok(()) => tracing::info!("the certificate of this node was renewed"),
                Err(error) => {
                    let until = model::time::Timestamp(state.identity.validity().until);
                    tracing::warn!(%error, %until, "the certificate of this node could not be renewed yet");
                }
            }
        }
        tokio::time::sleep(RENEW_INTERVAL).await;
    }
}

/// Runs a runner node until a signal. SIGINT (Ctrl-C) stops its processes. SIGTERM stops only this process, as for an
/// upgrade: processes continue under the next one.
pub fn run_runner_node(options: RunnerNodeOptions, on_event: OnEvent) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let node = tokio::select! {
            node = RunnerNode::start(options, on_event) => node?,
            _ = terminate.recv() => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let (mode, outcome) = tokio::select! {
            _ = terminate.recv() => (StopMode::LeaveProcesses, Ok(())),
            _ = tokio::signal::ctrl_c() => (StopMode::StopProcesses, Ok(())),
            reason = node.removed() => (StopMode::StopProcesses, Err(Error::Cluster(reason))),
        };
        tokio::select! {
            () = node.stop(mode) => outcome,
            // A second signal stops at once.
            _ = terminate.recv() => Ok(()),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}
