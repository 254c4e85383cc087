//! The audit log: entries, exported lines, verification.

use model::audit::{AuditEntry, Broken, Link};
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
    Head(ExportedHead),
}

/// The end of a hash chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditHead)]
pub struct AuditHeadView {
    /// Number of entries.
    pub number: u64,
    /// Link of the last entry.
    pub link: String,
}

/// Result of verifying the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditReport)]
pub struct AuditReportView {
    pub ok: bool,
    pub shards: Vec<ShardAuditView>,
}

/// Result of verifying the chain of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ShardAudit)]
pub struct ShardAuditView {
    pub shard: u16,
    /// Number of intact entries.
    pub entries: u64,
    /// Link of the last intact entry.
    pub head: String,
    pub ok: bool,
    pub broken: Option<BrokenView>,
}

/// The place where a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BrokenChain)]
pub struct BrokenView {
    pub number: u64,
    pub message: String,
}

impl From<Broken> for BrokenView {
    fn from(broken: Broken) -> Self {
        let number = match broken {
            Broken::Unreadable { number } | Broken::Missing { number, .. } | Broken::Changed { number } => number,
        };
        Self { number, message: broken.to_string() }
    }
}
