//! Start of the runner of this node.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blobs::Blobs;
use model::id::{Incarnation, NodeId, RunnerId, Shards};
use model::message::{Capacity, Profile};

use crate::clock;
use crate::error::Error;
use crate::options::Execution;

/// An idle spawner without a server exits after this time.
const UNCLAIMED_IDLE: Duration = Duration::from_secs(2);

/// Whose runner it is, and what it works with.
pub(crate) struct LocalRunner<'a> {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub shards: Shards,
    pub data_dir: &'a Path,
    pub blobs: &'a Blobs,
    /// Limit of the results that wait on disk. Absent: the shards are in this process, and nothing waits.
    pub outbox_bytes_max: Option<u64>,
}

/// Slots of this node for each shard, at least one.
pub(crate) fn capacity(execution: &Execution, shards: Shards) -> Capacity {
    let count = u32::from(shards.count());
    Capacity {
        process: (execution.process_slots() / count).max(1),
        echo: (execution.echo_slots / count).max(1),
        wasm: (execution.wasm_slots / count).max(1),
    }
}

pub(crate) fn profile(execution: &Execution) -> Profile {
    Profile {
        pools: execution.runner.pools.clone(),
        capabilities: execution.runner.capabilities.clone(),
        labels: execution.runner.labels.clone(),
        // Known once the spawner is.
        keeps_leases: false,
    }
}

/// Starts the runner and its spawner.
pub(crate) async fn start(
    execution: &Execution,
    local: LocalRunner<'_>,
    uplink: Arc<dyn runner::Uplink>,
) -> Result<runner::Handle, Error> {
    let LocalRunner { node, incarnation, shards, data_dir, blobs, outbox_bytes_max } = local;
    // The spawner's current directory may be another one.
    let data = std::path::absolute(data_dir)?;
    let directories = spawner::Directories {
        base: data.join("sandbox"),
        scratch: data.join("scratch"),
        workers: data.join("work/cache/workers"),
    };
    let home = runner::HomeId::of(&data)?;
    let mut wasm = wasm::Options::new(data.join("wasm"));
    wasm.slots = execution.wasm_threads();
    let options = runner::Options {
        id: RunnerId(node.0),
        incarnation,
        node,
        home,
        capacity: capacity(execution, shards),
        profile: Arc::new(profile(execution)),
        shards,
        logs: data.join("logs"),
        scratch: directories.scratch.clone(),
        stop_grace: Duration::from_millis(execution.stop_grace_ms),
        defaults: runner::Defaults {
            processes: execution.job_processes_max,
            output_bytes: execution.job_output_bytes_max,
            log_bytes: execution.log_bytes_max,
            tmp_bytes: execution.job_tmp_bytes_max,
            network_topics: execution.network_topics.clone(),
            allow_unsandboxed: execution.allow_unsandboxed,
        },
        memory_reserve_bytes: execution.memory_reserve_bytes(),
        blobs: blobs.clone(),
        spawner: runner::SpawnerOptions {
            options: spawner::Options {
                directories,
                // The control groups of a copied data directory are others.
                node: format!("{node}-{home}"),
                unclaimed_timeout: Duration::from_millis(execution.unclaimed_ms),
                unclaimed_idle_timeout: UNCLAIMED_IDLE,
                first_user: execution.sandbox_first_user,
                quit: false,
            },
            program: execution.spawner_program(),
            socket: data.join("spawner.sock"),
            log: data.join("spawner.log"),
        },
        wasm,
        outbox: outbox_bytes_max.map(|bytes_max| runner::OutboxOptions { directory: data.join("outbox"), bytes_max }),
        now: clock::now,
    };
    runner::start(options, uplink).await.map_err(Error::Spawner)
}
