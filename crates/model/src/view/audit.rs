//! The audit log as the API shows and exports it.

use serde::{Deserialize, Serialize};

use crate::audit::{Broken, Entry, Link};
use crate::id::{JobId, QueueId, ShardId};
use crate::time::Timestamp;
use crate::verdict::PolicyVersion;

/// One entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntryView {
    pub shard: u16,
    /// Counts the entries of its shard, from 1.
    pub number: u64,
    /// The hash of this entry and the link before it, in hexadecimal.
    pub link: String,
    pub at: Timestamp,
    pub action: String,
    /// Absent: Outlast itself, or somebody who did not say who they are.
    pub by: Option<String>,
    pub job: Option<JobId>,
    pub queue: Option<QueueId>,
    pub rule: Option<String>,
    pub policy: Option<PolicyVersion>,
    pub message: Option<String>,
}

impl AuditEntryView {
    pub fn new(shard: ShardId, link: Link, entry: Entry) -> Self {
        let Entry { number, at, action, by, job, queue, rule, policy, message } = entry;
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

/// A line of an exported audit log: the entry, and the very bytes that its link covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedEntry {
    #[serde(flatten)]
    pub entry: AuditEntryView,
    /// In base64. The link is BLAKE3 over the 32 bytes of the link before, zeros before the first, and these.
    pub encoded: String,
}

/// The last line of each shard in an exported audit log: without it something is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedHead {
    pub shard: u16,
    pub head: AuditHeadView,
}

/// The end of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHeadView {
    /// How many entries there are.
    pub number: u64,
    /// The newest link.
    pub link: String,
}

/// Whether nothing in the audit log was changed or left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditReportView {
    pub ok: bool,
    pub shards: Vec<ShardAuditView>,
}

/// The chain of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardAuditView {
    pub shard: u16,
    /// Entries that are as they were written.
    pub entries: u64,
    /// The link of the last of them.
    pub head: String,
    pub ok: bool,
    pub broken: Option<BrokenView>,
}

/// Where a chain is broken, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
