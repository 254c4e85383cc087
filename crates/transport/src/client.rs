//! The client side: joining a cluster, and connections of a member to a control node.
//!
//! A member has two TLS connections to a control node. One carries the link and is watched closely; the other carries
//! transfers, is opened on first use, and may be slow.

mod asks;
mod backoff;
mod connect_loop;
mod connection;
mod error;
mod join;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::ClientConfig;
use tokio::time::timeout;
use tonic::{Request, async_trait};

use crate::bytes_stream::ByteStream;
use crate::hello::Hello;
use crate::link::{Opening, Receiver, Sender};
use crate::refusal::Refusal;
use crate::tls::{self, Purpose};
use crate::wire::KeepAlive;
use crate::{Error, Identity, proto};

pub use connect_loop::{LinkEvent, connect_loop};
pub use error::{ConnectError, RequestError};
pub use join::{JoinError, JoinOptions, Joiner, join};
pub use requests::{Content, Requests};

use connection::Connection;

#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// TCP connection, TLS handshake and hello, each.
    pub connect_timeout: Duration,
    pub keep_alive: KeepAlive,
    /// Outgoing queue of a link.
    pub queue_bytes_max: usize,
    /// Wait before the second attempt to connect. Doubles with every attempt, with jitter.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            keep_alive: KeepAlive::LINK,
            queue_bytes_max: 32 << 20,
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
        }
    }
}

/// Answers requests of the control node.
#[async_trait]
pub trait Answers: Send + Sync + 'static {
    async fn answer(&self, method: &str, body: Bytes) -> Result<ByteStream, Refusal>;
}

/// Connects a member of a cluster to control nodes.
#[derive(Debug, Clone)]
pub struct Client {
    identity: Identity,
    options: ClientOptions,
    link_tls: Arc<ClientConfig>,
    bulk_tls: Arc<ClientConfig>,
}

/// A link to a control node, and the way to its other services.
#[derive(Debug)]
pub struct Connected {
    pub address: String,
    /// Of the control node.
    pub hello: Hello,
    pub protocol: u32,
    pub sender: Sender,
    pub receiver: Receiver,
    pub requests: Requests,
}

impl Client {
    pub fn new(identity: Identity, options: ClientOptions) -> Result<Self, Error> {
        let link_tls = tls::member_config(&identity, Purpose::Link)?;
        let bulk_tls = tls::member_config(&identity, Purpose::Bulk)?;
        Ok(Self { identity, options, link_tls, bulk_tls })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Opens a link to `host:port`. Requests of the control node go to `answers`.
    pub async fn connect(
        &self,
        address: &str,
        hello: &Hello,
        answers: Arc<dyn Answers>,
    ) -> Result<Connected, ConnectError> {
        let ClientOptions { connect_timeout, keep_alive, queue_bytes_max, .. } = self.options;
        let connection = Connection::open(address, self.link_tls.clone(), connect_timeout, keep_alive).await?;
        let wire = connection.wire().clone();
        let (opening, outgoing) = Opening::new(hello, queue_bytes_max, wire);
        let mut client = connection.client();
        let opened = async {
            let mut incoming = client.connect(Request::new(outgoing)).await?.into_inner();
            let first = incoming.message().await?;
            Ok((first, incoming))
        };
        let opened = timeout(connect_timeout, opened).await.map_err(|_| ConnectError::timeout(address))?;
        let (first, incoming) = match opened {
            Ok(opened) => opened,
            Err(status) => return Err(connection.connect_error(address, &status).await),
        };
        let protocol_error = |text: &str| ConnectError::protocol(address, text);
        let theirs = first.and_then(|frame| frame.hello).ok_or_else(|| protocol_error("no hello"))?;
        let theirs = Hello::from_proto(theirs).map_err(|refusal| protocol_error(refusal.text()))?;
        let peer = connection.peer(address)?;
        let protocol = theirs.agree(hello, &peer).map_err(ConnectError::Refused)?;
        let (sender, receiver) = opening.finish(incoming);
        let requests = Requests::new(self.clone(), address.to_owned());
        let asks = proto::AsksRequest {
            incarnation: hello.incarnation.0,
            process_nonce: Bytes::copy_from_slice(&hello.process.0),
        };
        tokio::spawn(asks::run(client, asks, answers, requests.clone(), sender.clone()));
        Ok(Connected { address: address.to_owned(), hello: theirs, protocol, sender, receiver, requests })
    }

    async fn open_bulk(&self, address: &str) -> Result<Connection, ConnectError> {
        let ClientOptions { connect_timeout, .. } = self.options;
        Connection::open(address, self.bulk_tls.clone(), connect_timeout, KeepAlive::BULK).await
    }
}
