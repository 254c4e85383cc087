//! A node's settings: from a YAML file, from flags, or their defaults.

mod governance;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use engine::Config;
use model::id::{ShardId, Shards};
use model::time::Millis;
use serde::Deserialize;

use crate::error::Error;

pub use governance::{
    KernelOptions, OTHERS, OutputOptions, PolicyOptions, PoolOptions, RunnerOptions, TenantOptions, TopicOptions,
};

/// Everything that can be set. Times are in milliseconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    /// Allows an address that other machines can reach, without any protection.
    pub insecure: bool,
    /// Names, besides the address itself and `localhost`, under which clients may call this server.
    pub hosts: Vec<String>,
    /// Set when the data directory is made; 0 means: as it was made, 1 for a new one.
    pub shards: u16,
    /// How many processes may run at once; 0 means two for each core.
    pub process_slots: u32,
    /// How many echo jobs may be under way at once.
    pub echo_slots: u32,
    /// Lets jobs ask for `"sandbox": "none"`, which gives them the rights of the server itself.
    pub allow_unsandboxed: bool,
    /// How many WebAssembly jobs may be under way at once, running or waiting for a thread.
    pub wasm_slots: u32,
    /// How many jobs that are not terminal each shard takes.
    pub live_jobs_max: usize,
    /// How long finished jobs are kept.
    pub retention_ms: u64,
    /// How long those that left a dead letter are, if that is longer.
    pub dead_letter_retention_ms: u64,
    /// Who is asked whether jobs may run.
    pub policy: PolicyOptions,
    /// How long a job waits for somebody to approve it.
    pub approval_expiry_ms: u64,
    /// Lets whoever can reach this server read what the policy had removed from results and kept.
    pub show_originals: bool,
    /// No attempt may run longer than this; 0 means: as long as its job says.
    pub running_max_ms: u64,
    /// What holds for the jobs of each topic; `*` stands for those that are not named.
    pub topics: BTreeMap<String, TopicOptions>,
    pub pools: BTreeMap<String, PoolOptions>,
    /// What each tenant may have; `*` stands for those that are not named.
    pub tenants: BTreeMap<String, TenantOptions>,
    /// What this node is, for those who place jobs.
    pub runner: RunnerOptions,
    /// Between a failed try and the next: the first time, doubled each time, up to the longest.
    pub retry_first_ms: u64,
    pub retry_longest_ms: u64,
    /// Queues made by hand go away after this long without work.
    pub queue_idle_ms: u64,
    /// Between asking a process to stop and making it.
    pub stop_grace_ms: u64,
    /// Of an attempt's output this much is kept: half of it from the beginning, half from the end.
    pub log_bytes_max: u64,
    /// What a job may leave in its outputs, how large its private /tmp is, and how many processes it may have, unless
    /// it asks for less.
    pub job_output_bytes_max: u64,
    pub job_tmp_bytes_max: u64,
    pub job_processes_max: u64,
    /// Topics whose jobs may reach the network, unless their sandbox is strict.
    pub network_topics: Vec<String>,
    /// With less memory than this left on the machine nothing new is started; 0 means a twentieth of it.
    pub memory_reserve_bytes: u64,
    /// Processes go on without a server for this long.
    pub unclaimed_ms: u64,
    /// Sandboxed processes run as this user of the host and those after it, where the server runs as root.
    pub sandbox_first_user: u32,
    /// Where blobs are kept.
    pub blobs: BlobStore,
    /// How much disk the plain copies of inputs and workers may take.
    pub cache_bytes_max: u64,
    /// How often blobs that nothing refers to are removed, and how old they must be.
    pub collect_interval_ms: u64,
    pub collect_grace_ms: u64,
    /// What is executed as a spawner; absent: this program.
    #[serde(skip)]
    pub spawner_program: Option<PathBuf>,
    /// How much of the stream of changes is kept for those who reconnect, in bytes and in time.
    pub events_keep_bytes: u64,
    pub events_keep_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        let config = Config::new(ShardId(0), Shards::new(1).expect("one shard is possible"));
        Self {
            data_dir: PathBuf::from("outlast-data"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            insecure: false,
            hosts: Vec::new(),
            shards: 0,
            process_slots: 0,
            echo_slots: 100_000,
            allow_unsandboxed: false,
            wasm_slots: 4096,
            live_jobs_max: config.live_jobs_max,
            retention_ms: config.retention.0,
            dead_letter_retention_ms: config.dead_letter_retention.0,
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
            cache_bytes_max: 20 << 30,
            collect_interval_ms: 3_600_000,
            collect_grace_ms: 3_600_000,
            spawner_program: None,
            events_keep_bytes: 512 << 20,
            events_keep_ms: 24 * 3600 * 1000,
        }
    }
}

/// Where blobs are kept.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlobStore {
    /// A directory; absent: `blobs` in the data directory.
    pub directory: Option<PathBuf>,
    /// Instead of a directory: a bucket of S3, or of anything that speaks its protocol. The credentials come from the
    /// environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`).
    pub s3: Option<S3Store>,
}

/// A bucket.
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
                Err(Error::BlobStore("`blobs` names a directory and a bucket: choose one".to_owned()))
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

/// For so many processes as there are slots there should be memory for each.
const PROCESS_MEMORY_BYTES: u64 = 256 << 20;

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

impl Options {
    /// Reads a YAML file; what it does not name has its default.
    pub fn from_file(file: &Path) -> Result<Self, Error> {
        let problem = |reason: String| Error::Config { file: file.to_owned(), reason };
        let text = std::fs::read_to_string(file).map_err(|error| problem(error.to_string()))?;
        serde_saphyr::from_str(&text).map_err(|error| problem(error.to_string()))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.listen.ip().is_loopback() && !self.insecure {
            return Err(Error::NotLoopback(self.listen));
        }
        Ok(())
    }

    /// Two for each core, and not more than there is memory for.
    pub(crate) fn process_slots(&self) -> u32 {
        match self.process_slots {
            0 => {
                let memory = runner::pressure::total_memory().unwrap_or(u64::MAX);
                (2 * cores()).min(u32::try_from(memory / PROCESS_MEMORY_BYTES).unwrap_or(u32::MAX)).max(1)
            }
            slots => slots,
        }
    }

    /// Components run on threads of the server: more than there are cores, since some wait.
    pub(crate) fn wasm_threads(&self) -> u32 {
        (4 * cores()).min(self.wasm_slots).max(1)
    }

    pub(crate) fn memory_reserve_bytes(&self) -> u64 {
        match self.memory_reserve_bytes {
            0 => runner::pressure::total_memory().unwrap_or(0) / 20,
            bytes => bytes,
        }
    }

    /// This very program, which becomes a spawner when it is asked to.
    pub(crate) fn spawner_program(&self) -> PathBuf {
        self.spawner_program.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
    }

    pub(crate) fn engine(&self, shard: ShardId, shards: Shards, jitter_key: [u8; 32]) -> Config {
        let mut config = Config::new(shard, shards);
        config.live_jobs_max = self.live_jobs_max;
        config.retention = Millis(self.retention_ms);
        config.dead_letter_retention = Millis(self.dead_letter_retention_ms);
        config.approval_expiry = Millis(self.approval_expiry_ms);
        config.runtime_max = (self.running_max_ms > 0).then_some(Millis(self.running_max_ms));
        config.jitter_key = jitter_key;
        config.retry_backoff.first = Millis(self.retry_first_ms);
        config.retry_backoff.longest = Millis(self.retry_longest_ms.max(self.retry_first_ms));
        config.queue_idle_expiry = Millis(self.queue_idle_ms);
        // A runner needs the grace itself before it can confirm a stop.
        config.stop_timeout = Millis(self.stop_grace_ms) + config.stop_timeout;
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_open_without_saying_so() {
        let mut options = Options { listen: "0.0.0.0:7070".parse().unwrap(), ..Options::default() };
        assert!(matches!(options.check(), Err(Error::NotLoopback(_))));
        options.insecure = true;
        assert!(options.check().is_ok());
        assert!(Options { listen: "[::1]:1".parse().unwrap(), ..Options::default() }.check().is_ok());
    }

    #[test]
    fn a_file_sets_what_it_names_and_nothing_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("outlast.yaml");
        std::fs::write(&file, "listen: 127.0.0.1:9\nretention_ms: 5\n").unwrap();
        let options = Options::from_file(&file).unwrap();
        assert_eq!((options.listen.port(), options.retention_ms), (9, 5));
        std::fs::write(&file, "lisen: x\n").unwrap();
        let refused = Options::from_file(&file).unwrap_err().to_string();
        assert!(refused.contains("lisen"), "{refused}");
    }
}
