//! What a server needs from its user.

use std::net::SocketAddr;

use bytes::Bytes;
use model::id::NodeId;
use tonic::async_trait;

use super::PeerRequests;
use crate::bytes_stream::ByteStream;
use crate::certificate::Fingerprint;
use crate::hello::Hello;
use crate::link::{Receiver, Sender};
use crate::refusal::Refusal;
use crate::tether::TetherEvent;
use crate::token::{Secret, TokenId};
use crate::{NodeIdentity, Role};

/// A node that wants to join.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    pub token: TokenId,
    pub secret: Secret,
    /// Proposed by the node.
    pub node: NodeId,
    /// Fingerprint of the node's public key. A node that repeats its request, because it missed the answer, has the
    /// same one.
    pub key: Fingerprint,
    pub name: String,
    pub software_version: String,
    pub addresses: Vec<String>,
    pub from: SocketAddr,
}

/// What a member does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Renew,
    Connect,
    /// Objects, calls, answers and tethers.
    Request,
}

/// A connected node.
#[derive(Debug)]
pub struct Peer {
    pub identity: NodeIdentity,
    pub hello: Hello,
    /// The protocol version of the link.
    pub protocol: u32,
    pub address: SocketAddr,
    pub sender: Sender,
    pub receiver: Receiver,
    /// Requests to the node.
    pub requests: PeerRequests,
}

#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Decides about a join, counts the use of the token durably and reserves the node id. The server then issues the
    /// certificate.
    async fn join(&self, request: JoinRequest) -> Result<Role, Refusal>;

    /// Decides about an action of a member, for example to refuse nodes that were removed.
    fn authorize(&self, peer: &NodeIdentity, action: Action) -> Result<(), Refusal>;

    /// A node is connected, or its link is refused. Returns soon; the link is closed when its receiver is dropped.
    async fn connected(&self, peer: Peer) -> Result<(), Refusal>;

    async fn get_object(&self, peer: NodeIdentity, kind: &str, id: Bytes, offset: u64) -> Result<ByteStream, Refusal>;

    /// An incomplete content ends with an error and must not be kept.
    async fn put_object(
        &self,
        peer: NodeIdentity,
        kind: &str,
        id: Bytes,
        content: ByteStream,
    ) -> Result<Bytes, Refusal>;

    async fn call(&self, peer: NodeIdentity, method: &str, body: Bytes) -> Result<ByteStream, Refusal>;

    /// Called in the order of events of each tether. Must not block.
    fn tether(&self, event: TetherEvent);
}
