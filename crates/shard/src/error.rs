//! Errors of an owner of a shard.

/// The owner that got the error must not be used any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),

    #[error("shard {shard} cannot read from the store: {reason}")]
    Read { shard: u16, reason: String },

    #[error("cannot read a record of shard {shard}: {source}")]
    Record { shard: u16, source: model::codec::DecodeError },
}

impl Error {
    /// Whether another owner of the shard, rebuilt from its records, may go on. Damage to the store stays.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Read { .. } => true,
            Self::Record { .. } => false,
            Self::Store(error) => match error {
                store::Error::Fenced { .. }
                | store::Error::Diverged { .. }
                | store::Error::FailedOver { .. }
                | store::Error::TooLarge { .. }
                | store::Error::Failed { .. } => true,
                store::Error::Stopped { .. }
                | store::Error::CursorExpired
                | store::Error::ForeignCursor
                | store::Error::DocumentChanged { .. }
                | store::Error::DocumentName { .. }
                | store::Error::InUse { .. }
                | store::Error::NotADirectory { .. }
                | store::Error::NotWritable { .. }
                | store::Error::NoSpace { .. }
                | store::Error::NewerFormat { .. }
                | store::Error::Malformed { .. }
                | store::Error::TablesBehind { .. }
                | store::Error::JournalBehind { .. }
                | store::Error::DamagedRecord { .. }
                | store::Error::Tables { .. }
                | store::Error::Journal(_)
                | store::Error::Io { .. } => false,
            },
        }
    }

    /// A record that cannot be decoded.
    pub fn record(shard: model::id::ShardId, source: model::codec::DecodeError) -> Self {
        Self::Record { shard: shard.0, source }
    }
}
