//! Joins a cluster with a token.

use std::time::Duration;

use bytes::Bytes;
use model::id::NodeId;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use super::connection::Connection;
use super::error::ConnectError;
use crate::refusal::Refusal;
use crate::tls::{self, OTHER_CLUSTER};
use crate::token::Token;
use crate::wire::KeepAlive;
use crate::{ClusterKey, Credentials, Error, PendingKey, certificate, proto};

/// How a node presents itself.
#[derive(Debug, Clone)]
pub struct Joiner {
    /// Proposed by the node, and confirmed by the certificate.
    pub node: NodeId,
    pub name: String,
    pub software_version: String,
    pub addresses: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// Each step: TCP connection, TLS handshake, request.
    pub timeout: Duration,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token's secret was not sent.
    #[error("{address}: {OTHER_CLUSTER}")]
    OtherCluster { address: String },
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Connect(ConnectError),
    #[error(transparent)]
    Invalid(#[from] Error),
}

/// Asks the control nodes one after the other, until one of them answers. `key` is the same for all attempts, so that
/// a repeated request can be recognised. The credentials are not stored yet: see [`crate::Identity::create`].
pub async fn join(
    control_nodes: &[String],
    token: &Token,
    joiner: &Joiner,
    key: &PendingKey,
    options: &JoinOptions,
) -> Result<Credentials, JoinError> {
    let mut last =
        JoinError::Connect(ConnectError::unreachable("the cluster", "no address of a control node is given"));
    for address in control_nodes {
        match join_one(address, token, joiner, key, options).await {
            Ok(credentials) => return Ok(credentials),
            Err(JoinError::Refused(refusal)) => return Err(JoinError::Refused(refusal)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn join_one(
    address: &str,
    token: &Token,
    joiner: &Joiner,
    key: &PendingKey,
    options: &JoinOptions,
) -> Result<Credentials, JoinError> {
    let tls = tls::joining_config(token.authority())?;
    let connection = match Connection::open(address, tls, options.timeout, KeepAlive::BULK).await {
        Ok(connection) => connection,
        Err(ConnectError::WrongServer { address, reason }) if reason == OTHER_CLUSTER => {
            return Err(JoinError::OtherCluster { address });
        }
        Err(error) => return Err(JoinError::Connect(error)),
    };
    let request = proto::JoinRequest {
        token_id: token.id().0,
        token_secret: Bytes::copy_from_slice(token.secret().as_bytes()),
        signing_request: Bytes::copy_from_slice(key.signing_request()),
        node_id: joiner.node.0,
        name: joiner.name.clone(),
        software_version: joiner.software_version.clone(),
        addresses: joiner.addresses.clone(),
    };
    let mut client = connection.client();
    let answered = timeout(options.timeout, client.join(request)).await;
    let answered = answered.map_err(|_| JoinError::Connect(ConnectError::timeout(address)))?;
    match answered {
        Ok(response) => credentials(response.into_inner(), token, joiner),
        Err(status) => Err(match connection.connect_error(address, &status).await {
            ConnectError::Refused(refusal) => JoinError::Refused(refusal),
            error => JoinError::Connect(error),
        }),
    }
}

/// Checks that the answer is for this node, of the cluster of the token.
fn credentials(response: proto::JoinResponse, token: &Token, joiner: &Joiner) -> Result<Credentials, JoinError> {
    let authority = CertificateDer::from(response.authority.to_vec());
    let certificate = CertificateDer::from(response.certificate.to_vec());
    let identity = certificate::identity(&certificate)?;
    let key = response.cluster_key.as_ref().try_into();
    let is_for_us = certificate::fingerprint(&authority)? == token.authority()
        && identity.cluster.as_bytes()[..] == response.cluster_id[..]
        && identity.node == joiner.node;
    match key {
        Ok(key) if is_for_us => Ok(Credentials { certificate, authority, cluster_key: ClusterKey::from_bytes(key) }),
        _ => Err(Error::certificate("the answer to the join request is for another node or cluster").into()),
    }
}
