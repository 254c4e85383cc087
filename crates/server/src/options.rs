//! Configuration of a node: defaults, YAML file, command line options.

mod cluster;
mod execution;
mod governance;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{Config, EXCLUSIVE_LEASE_MIN, FailingRule};
use model::id::{ShardId, Shards};
use model::limits::LEASE_MAX;
use model::time::Millis;
use serde::Deserialize;
use store::Store;

use crate::error::Error;

pub(crate) use cluster::CLUSTER_PORT;
pub use cluster::{ClusterOptions, MembershipProfile};
pub(crate) use execution::{Execution, execution_of};
pub use governance::{
    OutputOptions, PolicyOptions, PolicyServiceOptions, PoolOptions, RunnerOptions, TenantOptions, TopicOptions,
    WILDCARD,
};

type WrapStore = dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync;

/// A function around the store of the shards.
#[derive(Clone)]
pub struct StoreWrapper(Arc<WrapStore>);

impl StoreWrapper {
    pub fn new(wrap: impl Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wrap))
    }

    pub(crate) fn wrap(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        (self.0)(store)
    }
}

impl fmt::Debug for StoreWrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreWrapper")
    }
}

/// Configuration of a node. Times are in milliseconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Data directory.
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    /// Allows an address that other machines can reach, without authentication.
    pub insecure: bool,
    /// Host names of this server besides its address and `localhost`, for the check of the `Host` header.
    pub hosts: Vec<String>,
    /// Fixed when the data directory is created. 0: as created, 1 for a new one.
    pub shards: u16,
    /// Concurrent processes. 0: two per core, limited to one per 256 MiB of memory.
    pub process_slots: u32,
    /// Concurrent echo jobs.
    pub echo_slots: u32,
    /// Allows jobs with `"sandbox": "none"`, which have the rights of the server.
    pub allow_unsandboxed: bool,
    /// Concurrent WebAssembly jobs, running or waiting for a thread.
    pub wasm_slots: u32,
    /// Limit of non-terminal jobs per shard.
    pub live_jobs_max: usize,
    /// Retention of terminal jobs.
    pub retention_ms: u64,
    /// Retention of jobs with a dead letter, if longer.
    pub dead_letter_retention_ms: u64,
    /// Retention of the audit log. 0: for ever.
    pub audit_retention_ms: u64,
    /// Policy backend.
    pub policy: PolicyOptions,
    /// Time after which an approval request expires.
    pub approval_expiry_ms: u64,
    /// Allows all clients to read results before redaction.
    pub show_originals: bool,
    /// Time limit of every attempt. 0: only the limits of the job.
    pub running_max_ms: u64,
    /// Settings per topic. `*`: all topics not listed.
    pub topics: BTreeMap<String, TopicOptions>,
    pub pools: BTreeMap<String, PoolOptions>,
    /// Limits per tenant. `*`: all tenants not listed.
    pub tenants: BTreeMap<String, TenantOptions>,
    /// Attributes of this node's runner, for placement.
    pub runner: RunnerOptions,
    /// Delay before the first retry. Doubles with each retry up to `retry_longest_ms`.
    pub retry_first_ms: u64,
    pub retry_longest_ms: u64,
    /// Lease of exclusive jobs: an attempt is killed this long after its node last heard from the server. From 5 s to an hour.
    pub exclusive_lease_ms: u64,
    /// A node on which so many distinct jobs fail through its own fault within `cordon_window_ms`, with no success in
    /// between, is cordoned. 0: never.
    pub cordon_after_jobs: usize,
    pub cordon_window_ms: u64,
    /// Explicitly created queues are deleted after this time without work.
    pub queue_idle_ms: u64,
    /// Time between SIGTERM and SIGKILL.
    pub stop_grace_ms: u64,
    /// Stored output per attempt: half from the beginning, half from the end.
    pub log_bytes_max: u64,
    /// Limits of a job's outputs, private `/tmp` and processes, unless the job sets lower ones.
    pub job_output_bytes_max: u64,
    pub job_tmp_bytes_max: u64,
    pub job_processes_max: u64,
    /// Topics whose jobs have network access, unless their sandbox is strict.
    pub network_topics: Vec<String>,
    /// No new attempts with less free memory on the machine. 0: a twentieth of its memory.
    pub memory_reserve_bytes: u64,
    /// Processes continue without a server for this time.
    pub unclaimed_ms: u64,
    /// First host user id of sandboxed processes, if the server runs as root.
    pub sandbox_first_user: u32,
    pub blobs: BlobStore,
    /// Other nodes: where they reach this one, and when one of them is lost.
    pub cluster: ClusterOptions,
    /// Size limit of the local cache of uncompressed inputs and workers.
    pub cache_bytes_max: u64,
    /// Interval of garbage collection of blobs, and minimum age of removed blobs.
    pub collect_interval_ms: u64,
    pub collect_grace_ms: u64,
    /// Executable of the spawner. Default: this program.
    #[serde(skip)]
    pub spawner_program: Option<PathBuf>,
    /// Retention of the event stream for reconnecting clients, in bytes and in time.
    pub events_keep_bytes: u64,
    pub events_keep_ms: u64,
    /// Wraps the store of the shards, so that tests can inject faults.
    #[serde(skip)]
    pub store_wrapper: Option<StoreWrapper>,
}

impl Default for Options {
    fn default() -> Self {
        let config = Config::new(ShardId(0), Shards::new(1).expect("1 is a valid number of shards"));
        Self {
            data_dir: PathBuf::from("outlast-data"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            insecure: false,
            hosts: Vec::new(),
            shards: 0,
            process_slots: 0,
            echo_slots: 100_000,
            allow_unsandboxed: false,
            store_wrapper: None,
            wasm_slots: 4096,
            live_jobs_max: config.live_jobs_max,
            retention_ms: config.retention.0,
            dead_letter_retention_ms: config.dead_letter_retention.0,
            audit_retention_ms: config.audit_retention.map_or(0, |retention| retention.0),
            policy: PolicyOptions::default(),
            approval_expiry_ms: config.approval_expiry.0,
            show_originals: false,
            running_max_ms: 0,
            topics: BTreeMap::new(),
            pools: BTreeMap::new(),
            tenants: BTreeMap::new(),
            runner: RunnerOptions::default(),
            retry_first_ms: config.retry_backoff.first.0,
            retry_longest_ms: config.retry_backoff.longest.0,
            exclusive_lease_ms: config.exclusive_lease.0,
            cordon_after_jobs: FailingRule::default().jobs_min,
            cordon_window_ms: FailingRule::default().window.0,
            queue_idle_ms: config.queue_idle_expiry.0,
            stop_grace_ms: 5_000,
            log_bytes_max: 16 << 20,
            job_output_bytes_max: 10 << 30,
            job_tmp_bytes_max: 1 << 30,
            job_processes_max: 1024,
            network_topics: Vec::new(),
            memory_reserve_bytes: 0,
            unclaimed_ms: 600_000,
            sandbox_first_user: 2_000_000,
            blobs: BlobStore::default(),
            cluster: ClusterOptions::default(),
            cache_bytes_max: 20 << 30,
            collect_interval_ms: 3_600_000,
            collect_grace_ms: 3_600_000,
            spawner_program: None,
            events_keep_bytes: 512 << 20,
            events_keep_ms: 24 * 3600 * 1000,
        }
    }
}

/// Blob storage: a directory or a bucket.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlobStore {
    /// Default: `blobs` in the data directory.
    pub directory: Option<PathBuf>,
    /// Instead of a directory: a bucket of S3 or a compatible service. The credentials come from the environment
    /// (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`).
    pub s3: Option<S3Store>,
}

/// An S3 bucket.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3Store {
    pub bucket: String,
    pub region: Option<String>,
    pub endpoint: Option<String>,
    pub prefix: String,
}

impl BlobStore {
    pub(crate) fn location(&self, data_dir: &Path) -> Result<blobs::Location, Error> {
        match (&self.directory, &self.s3) {
            (Some(_), Some(_)) => {
                Err(Error::BlobStore("`blobs.directory` and `blobs.s3` are both set: remove one of them".to_owned()))
            }
            (Some(directory), None) => Ok(blobs::Location::Directory(directory.clone())),
            (None, None) => Ok(blobs::Location::Directory(data_dir.join("blobs"))),
            (None, Some(s3)) => Ok(blobs::Location::S3(blobs::S3 {
                bucket: s3.bucket.clone(),
                region: s3.region.clone(),
                endpoint: s3.endpoint.clone(),
                prefix: s3.prefix.clone(),
                credentials: blobs::Credentials::Environment,
            })),
        }
    }
}

impl Options {
    /// Reads a YAML file. Missing keys have their defaults.
    pub fn from_file(file: &Path) -> Result<Self, Error> {
        let problem = |reason: String| Error::Config { file: file.to_owned(), reason };
        let text = std::fs::read_to_string(file).map_err(|error| problem(error.to_string()))?;
        serde_saphyr::from_str(&text).map_err(|error| problem(error.to_string()))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.listen.ip().is_loopback() && !self.insecure {
            return Err(Error::NotLoopback(self.listen));
        }
        if !(EXCLUSIVE_LEASE_MIN..=LEASE_MAX).contains(&Millis(self.exclusive_lease_ms)) {
            return Err(Error::LeaseOutOfRange { lease_ms: self.exclusive_lease_ms });
        }
        Ok(())
    }

    /// The store of the shards, with the faults of a test around it.
    pub(crate) fn wrap_store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        match &self.store_wrapper {
            Some(wrapper) => wrapper.wrap(store),
            None => store,
        }
    }

    /// How this node runs attempts.
    pub(crate) fn execution(&self) -> Execution {
        execution_of!(self)
    }

    pub(crate) fn failing_rule(&self) -> FailingRule {
        FailingRule { jobs_min: self.cordon_after_jobs, window: Millis(self.cordon_window_ms) }
    }

    pub(crate) fn engine(&self, shard: ShardId, shards: Shards, jitter_key: [u8; 32]) -> Config {
        let mut config = Config::new(shard, shards);
        config.live_jobs_max = self.live_jobs_max;
        config.retention = Millis(self.retention_ms);
        config.dead_letter_retention = Millis(self.dead_letter_retention_ms);
        config.audit_retention = (self.audit_retention_ms > 0).then_some(Millis(self.audit_retention_ms));
        config.approval_expiry = Millis(self.approval_expiry_ms);
        config.runtime_max = (self.running_max_ms > 0).then_some(Millis(self.running_max_ms));
        config.jitter_key = jitter_key;
        config.runner_grace = Millis(self.cluster.reconnect_grace_ms);
        config.retry_backoff.first = Millis(self.retry_first_ms);
        config.retry_backoff.longest = Millis(self.retry_longest_ms.max(self.retry_first_ms));
        config.exclusive_lease = Millis(self.exclusive_lease_ms);
        config.queue_idle_expiry = Millis(self.queue_idle_ms);
        // A runner waits for the grace period before it can confirm a stop.
        config.stop_timeout = Millis(self.stop_grace_ms) + config.stop_timeout;
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_other_than_loopback_require_insecure() {
        let mut options = Options { listen: "0.0.0.0:7070".parse().unwrap(), ..Options::default() };
        assert!(matches!(options.check(), Err(Error::NotLoopback(_))));
        options.insecure = true;
        assert!(options.check().is_ok());
        assert!(Options { listen: "[::1]:1".parse().unwrap(), ..Options::default() }.check().is_ok());
    }

    #[test]
    fn a_file_overrides_defaults_and_unknown_keys_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("outlast.yaml");
        std::fs::write(&file, "listen: 127.0.0.1:9\nretention_ms: 5\n").unwrap();
        let options = Options::from_file(&file).unwrap();
        assert_eq!((options.listen.port(), options.retention_ms), (9, 5));
        std::fs::write(&file, "lisen: x\n").unwrap();
        let refused = Options::from_file(&file).unwrap_err().to_string();
        assert!(refused.contains("lisen"), "{refused}");
    }

    #[test]
    fn the_audit_log_is_kept_for_400_days_by_default_and_with_0_for_ever() {
        let shards = Shards::new(1).unwrap();
        let retention = |options: &Options| options.engine(ShardId(0), shards, [0; 32]).audit_retention;
        let mut options = Options::default();
        assert_eq!(retention(&options), Some(Millis(400 * 24 * 3600 * 1000)));
        options.audit_retention_ms = 5;
        assert_eq!(retention(&options), Some(Millis(5)));
        options.audit_retention_ms = 0;
        assert_eq!(retention(&options), None);
    }
}
