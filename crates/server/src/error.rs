//! Errors that prevent the start of a node or stop it.

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{0} is reachable from other machines, and this version has neither TLS nor authentication: \
         listen on 127.0.0.1, or use --insecure to give full access to everyone who can reach the address"
    )]
    NotLoopback(SocketAddr),

    #[error("`exclusive_lease_ms` is {lease_ms}: a lease must last for several heartbeats, from 5000 to 3600000 ms")]
    LeaseOutOfRange { lease_ms: u64 },

    #[error("cannot listen on {address}: {source}. Is another server running? Choose another address with --listen")]
    Listen { address: SocketAddr, source: std::io::Error },

    #[error("invalid number of shards, {shards}: choose 1 to 1024")]
    ShardCount { shards: u16 },

    #[error(
        "the data directory has {found} shards, not {requested}: the number is fixed when the directory is created"
    )]
    ShardsDiffer { found: u16, requested: u16 },

    #[error("invalid configuration `{file}`: {reason}", file = file.display())]
    Config { file: PathBuf, reason: String },

    #[error("{0}")]
    BlobStore(String),

    #[error("invalid policy: {0}")]
    Policy(String),

    #[error(transparent)]
    Signing(#[from] signing::Error),

    #[error(transparent)]
    Blobs(#[from] blobs::Error),

    #[error("cannot start the spawner, the process that runs jobs: {0}")]
    Spawner(std::io::Error),

    #[error(transparent)]
    Store(#[from] store::Error),

    #[error(transparent)]
    Shard(#[from] shard::Error),

    #[error(
        "cannot listen for nodes on {address}: {source}. Choose another address with `cluster.listen` or --cluster-listen"
    )]
    ClusterListen { address: SocketAddr, source: std::io::Error },

    #[error("there are too many join tokens: revoke some with `outlast nodes revoke-token`")]
    TooManyTokens,

    #[error(transparent)]
    Transport(#[from] transport::Error),

    #[error(transparent)]
    Membership(#[from] fabric::StartError),

    #[error(transparent)]
    Join(#[from] transport::JoinError),

    #[error("{0}")]
    Cluster(String),

    #[error("the document `{name}` of the store cannot be read: {source}")]
    Document { name: &'static str, source: model::codec::DecodeError },

    #[error("the server cannot continue: {0}")]
    Io(#[from] std::io::Error),

    #[error("a thread or task of the server failed: {0}")]
    Panicked(String),
}

impl Error {
    /// Whether another owner of the shard, rebuilt from its records, may go on. Damage to the store stays.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Panicked(_) => true,
            Self::Shard(error) => error.is_transient(),
            Self::NotLoopback(_)
            | Self::LeaseOutOfRange { .. }
            | Self::Listen { .. }
            | Self::ShardCount { .. }
            | Self::ShardsDiffer { .. }
            | Self::Config { .. }
            | Self::BlobStore(_)
            | Self::Policy(_)
            | Self::Signing(_)
            | Self::Blobs(_)
            | Self::Spawner(_)
            | Self::Store(_)
            | Self::ClusterListen { .. }
            | Self::TooManyTokens
            | Self::Transport(_)
            | Self::Membership(_)
            | Self::Join(_)
            | Self::Cluster(_)
            | Self::Document { .. }
            | Self::Io(_) => false,
        }
    }

    /// A record that cannot be decoded.
    pub(crate) fn record(shard: model::id::ShardId, source: model::codec::DecodeError) -> Self {
        Self::Shard(shard::Error::Record { shard: shard.0, source })
    }
}
