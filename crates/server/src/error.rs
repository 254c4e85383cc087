//! Why a node does not start, or stops.

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{0} can be reached from other machines, and this version has neither TLS nor tokens: \
         listen on 127.0.0.1, or say --insecure if everyone who can reach it may do anything"
    )]
    NotLoopback(SocketAddr),

    #[error("cannot listen on {address}: {source}. Is another server running? Choose another address with --listen")]
    Listen { address: SocketAddr, source: std::io::Error },

    #[error("{shards} shards are not possible: choose 1 to 1024")]
    ShardCount { shards: u16 },

    #[error("the data directory has {found} shards, not {asked}: the number is set when the directory is made")]
    ShardsDiffer { found: u16, asked: u16 },

    #[error("the configuration `{file}` cannot be used: {reason}", file = file.display())]
    Config { file: PathBuf, reason: String },

    #[error("{0}")]
    BlobStore(String),

    #[error("the policy cannot be used: {0}")]
    Policy(String),

    #[error(transparent)]
    Blobs(#[from] blobs::Error),

    #[error("the process that runs jobs cannot be started: {0}")]
    Spawner(std::io::Error),

    #[error(transparent)]
    Store(#[from] store::Error),

    #[error("a record of shard {shard} cannot be read: {source}")]
    Record { shard: u16, source: model::codec::DecodeError },

    #[error("the server cannot go on: {0}")]
    Io(#[from] std::io::Error),

    #[error("a part of the server has stopped: {0}")]
    Panicked(String),
}
