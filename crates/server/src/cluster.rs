//! The control node's side of a cluster: join tokens, the nodes that have joined, their links, and whether they live.
//!
//! Nothing listens until the first join token is created: a server without runner nodes has no open port besides its API.
//! From then on it listens at every start.

mod local_address;
mod objects;
mod peers;
mod record;
mod service;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blobs::Blobs;
use fabric::{Driver, DriverOptions, Keyring};
use model::id::{Incarnation, NodeId, Shards};
use model::node::NodeStarts;
use model::time::Millis;
use parking_lot::{Mutex, RwLock};
use store::Store;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use transport::token::{Token, TokenId, TokenRecord, Uses};
use transport::{Authority, Hello, Identity, PROTOCOL, PendingKey, ProcessNonce, Server, ServerOptions, Setup};

use crate::clock;
use crate::document::SharedDocument;
use crate::error::Error;
use crate::inbox::Inbox;
use crate::node_control::NodeControl;
use crate::node_news::NodeNews;
use crate::options::ClusterOptions;

pub(crate) use local_address::towards as local_address_towards;
pub(crate) use objects::RemoteObjects;
pub(crate) use peers::{PeerNode, Peers};
pub(crate) use record::{ClusterRecord, JoinedNode, is_usable};
pub(crate) use watch::NodeWatch;

use record::ReportSnapshot;
use service::ClusterService;

/// Documents of the store.
const RECORD: &str = "cluster";
const REPORTS: &str = "node-reports";
/// Directory of keys and certificates, in the data directory.
pub(crate) const DIRECTORY: &str = "cluster";
/// Name of a node, and note of a token.
pub(crate) const NAME_BYTES_MAX: usize = 200;
/// Interval of looking for a certificate to renew, and of keeping reports.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(10);

/// What the parts of the cluster share.
pub(crate) struct Shared {
    shards: Shards,
    inboxes: Vec<Inbox>,
    blobs: Blobs,
    peers: Peers,
    watch: Arc<NodeWatch>,
    control: Arc<NodeControl>,
    news: NodeNews,
    record: SharedDocument<ClusterRecord>,
    /// The nodes of the record: requests are authorised without reading the store.
    members: RwLock<BTreeMap<NodeId, JoinedNode>>,
    /// Held while record and memory change, so that both change in the same order.
    changing: Mutex<()>,
}

impl Shared {
    /// Changes the record. Blocks on the store.
    fn change<E: From<Error>>(&self, change: impl Fn(&mut ClusterRecord) -> Result<(), E>) -> Result<(), E> {
        let _changing = self.changing.lock();
        let (record, ()) = self.record.change(change)?;
        *self.members.write() = record.nodes;
        Ok(())
    }

    /// Nodes of the record that have been connected are lost if they do not return.
    fn await_nodes(&self, record: &ClusterRecord, grace: Millis) {
        for (node, joined) in &record.nodes {
            if let Some(newest) = joined.newest {
                self.watch.await_return(*node, newest.incarnation, grace);
            }
        }
    }
}

/// Who this node is.
pub(crate) struct ControlNode {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub data_dir: PathBuf,
    pub options: ClusterOptions,
    pub shards: Shards,
    pub inboxes: Vec<Inbox>,
    pub blobs: Blobs,
    pub peers: Peers,
    pub control: Arc<NodeControl>,
    pub store: Arc<dyn Store>,
}

/// The cluster of this control node.
pub(crate) struct Cluster {
    node: NodeId,
    incarnation: Incarnation,
    directory: PathBuf,
    options: ClusterOptions,
    shared: Arc<Shared>,
    reports: SharedDocument<ReportSnapshot>,
    running: tokio::sync::Mutex<Option<Running>>,
}

/// The open ports and their tasks.
struct Running {
    authority: Arc<Authority>,
    /// Where other nodes reach this one.
    address: SocketAddr,
    server: Server,
    membership: Driver,
    tasks: Vec<JoinHandle<()>>,
}

/// A token that was just created. Its text is not stored.
pub(crate) struct NewToken {
    pub token: Token,
    pub record: TokenRecord,
    /// Address for `outlast join`.
    pub address: SocketAddr,
}

impl Cluster {
    /// Listens if nodes can join or have joined.
    pub async fn open(control: ControlNode) -> Result<Arc<Self>, Error> {
        let ControlNode { node, incarnation, data_dir, options, shards, inboxes, blobs, peers, control, store } =
            control;
        let watch = Arc::new(NodeWatch::new(Millis(options.adopt_grace_ms), inboxes.clone()));
        let news = NodeNews::new(&inboxes);
        let shared = Arc::new(Shared {
            shards,
            inboxes,
            blobs,
            peers,
            watch,
            control,
            news,
            record: SharedDocument::new(store.clone(), RECORD),
            members: RwLock::default(),
            changing: Mutex::default(),
        });
        let cluster = Arc::new(Self {
            node,
            incarnation,
            directory: data_dir.join(DIRECTORY),
            options,
            shared,
            reports: SharedDocument::new(store, REPORTS),
            running: tokio::sync::Mutex::default(),
        });
        let opened = cluster.clone();
        let record = blocking(move || {
            let record = opened.shared.record.read()?;
            *opened.shared.members.write() = record.nodes.clone();
            opened.shared.await_nodes(&record, Millis(opened.options.reconnect_grace_ms));
            for (node, report) in opened.reports.read()?.reports {
                opened.shared.peers.set_report(node, report);
            }
            Ok(record)
        });
        let record = record.await?;
        if !record.nodes.is_empty() || !record.tokens.is_empty() {
            cluster.listen().await?;
        }
        Ok(cluster)
    }

    pub fn watch(&self) -> &NodeWatch {
        &self.shared.watch
    }

    pub fn peers(&self) -> &Peers {
        &self.shared.peers
    }

    /// The runner nodes that have joined.
    pub fn nodes(&self) -> BTreeMap<NodeId, JoinedNode> {
        self.shared.members.read().clone()
    }

    pub fn has_nodes(&self) -> bool {
        !self.shared.members.read().is_empty()
    }

    /// The starts of a node that this cluster knows.
    pub fn starts(&self, node: NodeId) -> NodeStarts {
        if node == self.node {
            return NodeStarts { newest: self.incarnation, is_connected: true };
        }
        let newest = self.node(node).and_then(|joined| joined.newest);
        NodeStarts {
            newest: newest.map_or(Incarnation(0), |start| start.incarnation),
            is_connected: self.shared.peers.get(node).is_some(),
        }
    }

    pub fn node(&self, node: NodeId) -> Option<JoinedNode> {
        self.shared.members.read().get(&node).cloned()
    }

    /// Opens the ports, if they are not open. Returns the address for other nodes and the authority.
    async fn listen(self: &Arc<Self>) -> Result<(SocketAddr, Arc<Authority>), Error> {
        let mut running = self.running.lock().await;
        if let Some(running) = running.as_ref() {
            return Ok((running.address, running.authority.clone()));
        }
        let started = self.start().await?;
        let found = (started.address, started.authority.clone());
        *running = Some(started);
        Ok(found)
    }

    async fn start(self: &Arc<Self>) -> Result<Running, Error> {
        let listen = self.options.listen;
        let problem = |source| Error::ClusterListen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(problem)?;
        let bound = listener.local_addr().map_err(problem)?;
        let (directory, node) = (self.directory.clone(), self.node);
        let (authority, identity) = blocking(move || {
            std::fs::create_dir_all(&directory)?;
            let authority = Authority::open_or_create(&directory)?;
            let identity = Identity::open_or_issue(&directory, &authority, node, clock::now())?;
            Ok((Arc::new(authority), identity))
        })
        .await?;
        let address = self.advertised(bound);
        let keyring = Keyring {
            cluster: fabric::ClusterId(*authority.cluster().as_bytes()),
            seal_with: fabric::ClusterKey::new(*authority.cluster_key().as_bytes()),
            also_accept: None,
        };
        let watch = self.shared.watch.clone();
        let membership = Driver::start(
            DriverOptions {
                node: self.node,
                incarnation: self.incarnation,
                role: fabric::Role::Control,
                profile: self.options.profile.timings(),
                bind: bound,
                advertise: address,
                join: Vec::new(),
                keyring,
            },
            move |event| watch.membership(event),
        )?;
        self.shared.watch.set_members(membership.handle().clone());
        let hello = Hello {
            protocol: PROTOCOL,
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node,
            incarnation: self.incarnation,
            process: ProcessNonce::random()?,
        };
        let service = Arc::new(ClusterService(self.shared.clone()));
        let setup = Setup { authority: authority.clone(), identity: identity.clone(), hello, service };
        let server = Server::start(listener, setup, ServerOptions::default())?;
        let maintenance = maintain(Arc::downgrade(self), authority.clone(), identity);
        let tasks = vec![tokio::spawn(self.shared.watch.clone().run()), tokio::spawn(maintenance)];
        tracing::info!(%address, "runner nodes can join");
        Ok(Running { authority, address, server, membership, tasks })
    }

    /// Where other nodes reach this one.
    fn advertised(&self, bound: SocketAddr) -> SocketAddr {
        let ip = match (self.options.advertise, bound.ip()) {
            (Some(ip), _) => ip,
            (None, ip) if !ip.is_unspecified() => ip,
            (None, _) => local_address::default(),
        };
        SocketAddr::new(ip, bound.port())
    }

    /// Creates a token, and opens the ports if this is the first one.
    pub async fn create_token(
        self: &Arc<Self>,
        uses: Uses,
        expires_at: Option<Millis>,
        note: String,
    ) -> Result<NewToken, Error> {
        let (address, authority) = self.listen().await?;
        let token = Token::generate(authority.fingerprint())?;
        let now = clock::now();
        let record = token.record(now, expires_at, uses, note);
        let (cluster, stored) = (self.clone(), record.clone());
        blocking(move || {
            cluster.shared.change(|record| match record.add_token(stored.clone(), now) {
                true => Ok(()),
                false => Err(Error::TooManyTokens),
            })
        })
        .await?;
        Ok(NewToken { token, record, address })
    }

    /// Tokens on record. Blocks on the store.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>, Error> {
        Ok(self.shared.record.read()?.tokens)
    }

    /// False: there is no such token. Blocks on the store.
    pub fn revoke_token(&self, id: TokenId) -> Result<bool, Error> {
        if !self.tokens()?.iter().any(|token| token.id == id) {
            return Ok(false);
        }
        self.shared.change(|record| {
            record.revoke_token(id);
            Ok::<_, Error>(())
        })?;
        Ok(true)
    }

    /// Removes a node: its certificate is not accepted any more. Blocks on the store.
    pub fn remove(&self, node: NodeId) -> Result<(), Error> {
        self.shared.change(|record| {
            record.nodes.remove(&node);
            Ok::<_, Error>(())
        })?;
        // Its work is given to others.
        self.shared.peers.forget(node, &self.shared.watch);
        self.shared.control.forget(node)
    }

    /// Stores the reports of nodes, for the next start. Blocks on the store.
    fn keep_reports(&self) -> Result<(), Error> {
        let reports = self.shared.peers.reports();
        self.reports.change(|snapshot| {
            *snapshot = ReportSnapshot::of(&reports);
            Ok::<_, Error>(())
        })?;
        Ok(())
    }

    /// Closes the ports.
    pub async fn stop(&self) {
        let Some(running) = self.running.lock().await.take() else { return };
        let Running { server, membership, tasks, .. } = running;
        tasks.iter().for_each(JoinHandle::abort);
        server.shutdown().await;
        // Not a departure: the next process of this node continues.
        let _ = tokio::task::spawn_blocking(move || drop(membership)).await;
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Panicked(error.to_string()))?
}

/// Keeps the reports of nodes and renews the certificate of this node, until the cluster stops.
async fn maintain(cluster: std::sync::Weak<Cluster>, authority: Arc<Authority>, identity: Identity) {
    let mut kept = BTreeMap::new();
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        let Some(cluster) = cluster.upgrade() else { return };
        let reports = cluster.shared.peers.reports();
        let has_news = reports != kept;
        kept = reports;
        let (authority, identity) = (authority.clone(), identity.clone());
        let done = blocking(move || {
            if has_news {
                cluster.keep_reports()?;
            }
            let now = clock::now();
            if identity.needs_renewal(now) {
                let key = PendingKey::generate()?;
                let certificate = authority.issue(key.signing_request(), identity.node(), now)?;
                identity.renew(key, certificate)?;
            }
            Ok(())
        });
        if let Err(error) = done.await {
            tracing::warn!(%error, "the cluster's records or the certificate of this node could not be brought up to date");
        }
    }
}
