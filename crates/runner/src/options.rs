//! Settings of a runner, and its connection to the shards.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blobs::Blobs;
use model::id::{Incarnation, NodeId, RunnerId, ShardId, Shards};
use model::message::{AttemptRef, Capacity, Load, Profile, RunnerFrame};
use model::time::Millis;

use crate::HomeId;
use crate::outbox::OutboxOptions;
use crate::progress::ProgressReport;
use crate::spawner_client::SpawnerOptions;

/// A runner's settings.
#[derive(Debug, Clone)]
pub struct Options {
    pub id: RunnerId,
    pub incarnation: Incarnation,
    pub node: NodeId,
    /// Identity of the node's data directory.
    pub home: HomeId,
    /// Slots per shard.
    pub capacity: Capacity,
    /// Pools, capabilities and labels.
    pub profile: Arc<Profile>,
    pub shards: Shards,
    /// Directory of log files, until their attempts have ended.
    pub logs: PathBuf,
    /// Directory of the attempts' workspaces.
    pub scratch: PathBuf,
    /// Time between SIGTERM and SIGKILL.
    pub stop_grace: Duration,
    pub defaults: Defaults,
    /// With less available memory than this, no new processes and components are started.
    pub memory_reserve_bytes: u64,
    pub blobs: Blobs,
    /// Stores results that a shard does not acknowledge soon. `None` if the shards are in the same process: their records
    /// survive whatever this runner does.
    pub outbox: Option<OutboxOptions>,
    pub spawner: SpawnerOptions,
    pub wasm: wasm::Options,
    /// Wall clock.
    pub now: fn() -> Millis,
}

/// Limits of attempts without lower ones of their own.
#[derive(Debug, Clone)]
pub struct Defaults {
    pub processes: u64,
    /// Total size of `outputs/`.
    pub output_bytes: u64,
    /// Stored output of both streams together: half for the beginning, half for the end.
    pub log_bytes: u64,
    /// Size of a private /tmp.
    pub tmp_bytes: u64,
    /// Topics whose jobs have network access.
    pub network_topics: Vec<String>,
    /// Whether processes may run without a sandbox. Checked at submission as well, but a workflow may determine the
    /// sandbox only when a task starts.
    pub allow_unsandboxed: bool,
}

/// Connection from a runner to its shards. A frame may be lost: the runner repeats what is not acknowledged.
pub trait Uplink: Send + Sync + 'static {
    /// Must not block, and must not call the runner.
    fn deliver(&self, shard: ShardId, frame: RunnerFrame);

    /// Load report, sent when the load has changed, at most every second. Must not block.
    fn load(&self, incarnation: Incarnation, load: Load);

    /// Progress of a running attempt. Best effort: reports may be lost or ignored.
    fn progress(&self, attempt_ref: AttemptRef, report: ProgressReport) {
        let _ = (attempt_ref, report);
    }
}
