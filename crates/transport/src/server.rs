//! The server of a control node.
//!
//! One TCP listener takes TLS connections of members and joining nodes, and tethers; the first byte tells them apart.
//! On TLS, each connection has its own gRPC service that knows the identity in the client certificate.
//!
//! Runners are often behind firewalls and need outgoing connections only. The control node's own requests therefore
//! take the reverse way: it sends an *ask* on a stream that the runner opened, and the runner answers each ask with a
//! call of its own. Each answer has its own flow control, so a large log delays nothing else, and a node without
//! requests costs one idle stream.

mod admission;
mod asks;
mod connection;
mod handler;
mod join_rate;
mod listener;
mod service;
mod tethers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::time::Millis;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::hello::Hello;
use crate::wire::KeepAlive;
use crate::{Authority, Error, Identity, tls};

pub use asks::PeerRequests;
pub use service::{Action, JoinRequest, Peer, Service};

use admission::Admission;
use asks::Asks;
use join_rate::JoinRate;
use tethers::Tethers;

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Open connections, tethers included. Further ones are closed at once.
    pub connections_max: usize,
    /// Of one IPv4 address or IPv6 /64 network. A node has three: link, transfers, tether.
    pub connections_per_address_max: usize,
    /// Connections that have not presented a certificate or proof.
    pub unauthenticated_max: usize,
    pub unauthenticated_per_address_max: usize,
    /// From the TCP connection to the end of the TLS handshake or of a tether's line.
    pub handshake_timeout: Duration,
    /// Lifetime of a connection without a certificate.
    pub join_timeout: Duration,
    /// Join requests of one address that may come at once.
    pub join_burst: u32,
    /// Join requests of one address in the long run.
    pub joins_per_sec: u32,
    /// Join requests that are processed at once. Others wait.
    pub joins_concurrent_max: usize,
    pub keep_alive: KeepAlive,
    /// Outgoing queue of one link.
    pub queue_bytes_max: usize,
    /// Requests of one connection that are processed at once.
    pub streams_per_connection_max: u32,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            connections_max: 8192,
            connections_per_address_max: 1024,
            unauthenticated_max: 512,
            unauthenticated_per_address_max: 128,
            handshake_timeout: Duration::from_secs(5),
            join_timeout: Duration::from_secs(15),
            join_burst: 200,
            joins_per_sec: 50,
            joins_concurrent_max: 16,
            keep_alive: KeepAlive::LINK,
            queue_bytes_max: 32 << 20,
            streams_per_connection_max: 256,
        }
    }
}

/// What a server serves with.
pub struct Setup {
    /// Issues certificates at join and renewal.
    pub authority: Arc<Authority>,
    /// The certificate of this node.
    pub identity: Identity,
    pub hello: Hello,
    pub service: Arc<dyn Service>,
}

/// What all connections share.
pub(crate) struct Core {
    authority: Arc<Authority>,
    identity: Identity,
    hello: Hello,
    service: Arc<dyn Service>,
    options: ServerOptions,
    acceptor: TlsAcceptor,
    admission: Arc<Admission>,
    joins: JoinRate,
    asks: Asks,
    tethers: Tethers,
    shutdown: watch::Receiver<bool>,
}

/// A running server. Dropping it stops the server.
pub struct Server {
    address: SocketAddr,
    core: Arc<Core>,
    shutdown: watch::Sender<bool>,
    listener: JoinHandle<()>,
}

impl Server {
    /// Serves on the listener. Must be called within a tokio runtime.
    pub fn start(listener: TcpListener, setup: Setup, options: ServerOptions) -> Result<Self, Error> {
        let address = listener.local_addr().map_err(|error| Error::Listener { source: error })?;
        let (shutdown, observer) = watch::channel(false);
        let core = Arc::new(Core {
            acceptor: TlsAcceptor::from(tls::server_config(&setup.identity)?),
            authority: setup.authority,
            identity: setup.identity,
            hello: setup.hello,
            service: setup.service,
            admission: Arc::new(Admission::new(&options)),
            joins: JoinRate::new(&options),
            asks: Asks::default(),
            tethers: Tethers::default(),
            options,
            shutdown: observer,
        });
        let listener = tokio::spawn(listener::run(listener, core.clone()));
        Ok(Self { address, core, shutdown, listener })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Open connections and tethers.
    pub fn connections(&self) -> usize {
        self.core.admission.open()
    }

    /// Closes the listener and all connections, and waits for them.
    pub async fn shutdown(mut self) {
        self.shutdown.send_replace(true);
        let _ = (&mut self.listener).await;
        self.core.admission.empty().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
    }
}

/// The wall clock.
fn now() -> Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Resolves when the server is shut down.
async fn is_shut_down(shutdown: &watch::Receiver<bool>) {
    let mut shutdown = shutdown.clone();
    let _ = shutdown.wait_for(|is_shut_down| *is_shut_down).await;
}
