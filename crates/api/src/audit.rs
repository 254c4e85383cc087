//! The audit log: entries, exported lines, verification.

use model::audit::{AuditEntry, Broken, Checkpoint, Invalid, Link, SignedCheckpoint};
use model::id::{JobId, QueueId, ShardId};
use model::time::Timestamp;
use model::verdict::PolicyVersion;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditEntryView {
    pub shard: u16,
    /// Number of the entry within its shard, from 1.
    pub number: u64,
    /// BLAKE3 over the previous link (32 zero bytes before the first) and the encoded entry, in hexadecimal.
    pub link: String,
    pub at: Timestamp,
    pub action: String,
    /// Null for Outlast itself and for requests without `Outlast-Actor`.
    pub by: Option<String>,
    pub job: Option<JobId>,
    pub queue: Option<QueueId>,
    pub rule: Option<String>,
    pub policy: Option<PolicyVersion>,
    pub message: Option<String>,
}

impl AuditEntryView {
    pub fn new(shard: ShardId, link: Link, entry: AuditEntry) -> Self {
        let AuditEntry { number, at, action, by, job, queue, rule, policy, message } = entry;
        Self {
            shard: shard.0,
            number,
            link: link.to_string(),
            at: Timestamp(at),
            action: action.as_str().to_owned(),
            by,
            job,
            queue,
            rule,
            policy,
            message,
        }
    }
}

/// An entry in an exported audit log, with the bytes that its link covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportedEntry {
    #[serde(flatten)]
    pub entry: AuditEntryView,
    /// Encoded entry, in base64. Its link is BLAKE3 over the 32 bytes of the previous link, zeros before the first,
    /// and these bytes.
    pub encoded: String,
}

/// The beginning of a shortened hash chain: the oldest entries were removed after their retention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditCheckpoint)]
pub struct CheckpointView {
    /// All entries up to this one were removed.
    pub number: u64,
    /// Link of the last removed entry. The first entry on record follows it.
    pub link: String,
    /// Time of the removal.
    pub at: Timestamp,
    /// Ed25519 public key of the server that signed it, in hexadecimal.
    pub public_key: String,
    /// Ed25519 signature, in hexadecimal.
    pub signature: String,
}

impl CheckpointView {
    pub fn new(signed: &SignedCheckpoint) -> Self {
        let SignedCheckpoint { checkpoint, public_key, signature } = signed;
        Self {
            number: checkpoint.number,
            link: checkpoint.link.to_string(),
            at: Timestamp(checkpoint.at),
            public_key: public_key.to_string(),
            signature: signature.to_string(),
        }
    }

    /// The checkpoint of a shard with these fields. Absent if one of them cannot be read.
    pub fn signed(&self, shard: ShardId) -> Option<SignedCheckpoint> {
        let checkpoint = Checkpoint { shard, number: self.number, link: self.link.parse().ok()?, at: self.at.0 };
        let (public_key, signature) = (self.public_key.parse().ok()?, self.signature.parse().ok()?);
        Some(SignedCheckpoint { checkpoint, public_key, signature })
    }
}

/// The first line of a shortened chain in an exported audit log. It may occur again if entries are removed during the
/// export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportedCheckpoint {
    pub shard: u16,
    pub checkpoint: CheckpointView,
    /// The bytes that the signature covers, in base64.
    pub encoded: String,
}

/// The last line of each shard in an exported audit log. An export without it is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportedHead {
    pub shard: u16,
    pub head: AuditHeadView,
}

/// A line of an exported audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ExportedLine {
    Entry(ExportedEntry),
    Checkpoint(ExportedCheckpoint),
    Head(ExportedHead),
}

/// The end of a hash chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditHead)]
pub struct AuditHeadView {
    /// Number of the last entry.
    pub number: u64,
    /// Link of the last entry.
    pub link: String,
}

/// Result of verifying the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditReport)]
pub struct AuditReportView {
    pub ok: bool,
    /// Public key with which the server signs checkpoints, in hexadecimal. Null for an exported log.
    pub public_key: Option<String>,
    pub shards: Vec<ShardAuditView>,
}

/// Result of verifying the chain of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ShardAudit)]
pub struct ShardAuditView {
    pub shard: u16,
    /// Number of the first entry on record: 1, or the one after the checkpoint.
    pub first: u64,
    /// Number of intact entries on record.
    pub entries: u64,
    /// Number of the last intact entry; 0 without one.
    pub last: u64,
    /// Link of the last intact entry.
    pub head: String,
    /// Where the chain begins, if entries were removed.
    pub checkpoint: Option<VerifiedCheckpointView>,
    pub ok: bool,
    pub broken: Option<BrokenView>,
}

/// A checkpoint, and whether its signature is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = VerifiedCheckpoint)]
pub struct VerifiedCheckpointView {
    #[serde(flatten)]
    pub checkpoint: CheckpointView,
    /// Whether it was signed with the key of the server and not changed since.
    pub valid: bool,
}

/// The place where a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BrokenChain)]
pub struct BrokenView {
    pub number: u64,
    pub message: String,
}

impl BrokenView {
    /// A chain that begins with an invalid checkpoint.
    pub fn checkpoint(number: u64, invalid: Invalid) -> Self {
        Self { number: number.saturating_add(1), message: invalid.to_string() }
    }
}

impl From<Broken> for BrokenView {
    fn from(broken: Broken) -> Self {
        let number = match broken {
            Broken::Unreadable { number } | Broken::Missing { number, .. } | Broken::Changed { number } => number,
        };
        Self { number, message: broken.to_string() }
    }
}
