//! Authenticated connections between the nodes of a cluster.
//!
//! The crate knows bytes and node identities, nothing about jobs.
//!
//! - [`Authority`] issues certificates; a control node keeps it. [`Identity`] is a node's key and certificate.
//! - [`token`]: a new node joins with a token, see [`join`].
//! - [`Server`] listens on a control node. Its user implements [`Service`].
//! - [`Client`] connects a member to a control node, and [`connect_loop`] keeps it connected.
//! - [`Sender`] and [`Receiver`] are the halves of a link, which carries envelopes.
//! - [`tether`]: a connection that outlives the server process of its node.

mod authority;
mod bytes_stream;
mod certificate;
mod client;
mod cluster;
mod durable_file;
mod error;
mod hello;
mod identity;
pub mod limits;
mod link;
mod proto;
mod random;
mod refusal;
mod server;
pub mod tether;
mod tls;
pub mod token;
mod wire;

pub use authority::Authority;
pub use bytes_stream::ByteStream;
pub use certificate::{Fingerprint, Validity};
pub use client::{
    Answers, Client, ClientOptions, ConnectError, Connected, Content, JoinError, JoinOptions, Joiner, LinkEvent,
    RequestError, Requests, connect_loop, join,
};
pub use cluster::{ClusterId, ClusterKey, InvalidIdentity, NodeIdentity, Role};
pub use error::Error;
pub use hello::{Hello, PROTOCOL, ProcessNonce, Versions};
pub use identity::{Credentials, Identity, PendingKey};
pub use link::{CloseReason, Receiver, SendError, Sender, TrySendError};
pub use refusal::{Refusal, RefusalKind};
pub use server::{Action, JoinRequest, Peer, PeerRequests, Server, ServerOptions, Service, Setup};
/// For implementations of [`Service`] and [`Answers`].
pub use tonic::async_trait;
pub use wire::KeepAlive;
