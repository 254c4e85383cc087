//! A node's settings: from a YAML file, from flags, or their defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use engine::Config;
use model::id::{ShardId, Shards};
use model::time::Millis;
use serde::Deserialize;

use crate::error::Error;

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
    /// How many jobs that are not terminal each shard takes.
    pub live_jobs_max: usize,
    /// How long finished jobs are kept.
    pub retention_ms: u64,
    /// Between a failed try and the next: the first time, doubled each time, up to the longest.
    pub retry_first_ms: u64,
    pub retry_longest_ms: u64,
    /// Queues made by hand go away after this long without work.
    pub queue_idle_ms: u64,
    /// Between asking a process to stop and making it.
    pub stop_grace_ms: u64,
    /// Of each output stream of an attempt this much is kept.
    pub log_bytes_max: u64,
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
            live_jobs_max: config.live_jobs_max,
            retention_ms: config.retention.0,
            retry_first_ms: config.retry_backoff.first.0,
            retry_longest_ms: config.retry_backoff.longest.0,
            queue_idle_ms: config.queue_idle_expiry.0,
            stop_grace_ms: 5_000,
            log_bytes_max: 16 << 20,
            events_keep_bytes: 512 << 20,
            events_keep_ms: 24 * 3600 * 1000,
        }
    }
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

    pub(crate) fn process_slots(&self) -> u32 {
        match self.process_slots {
            0 => std::thread::available_parallelism().map_or(2, |cores| 2 * cores.get() as u32),
            slots => slots,
        }
    }

    pub(crate) fn engine(&self, shard: ShardId, shards: Shards) -> Config {
        let mut config = Config::new(shard, shards);
        config.live_jobs_max = self.live_jobs_max;
        config.retention = Millis(self.retention_ms);
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
