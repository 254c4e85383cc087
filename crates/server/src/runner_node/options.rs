//! Configuration of a runner node: defaults, YAML file, command line options.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::Error;
use crate::options::{Execution, MembershipProfile, Options as ControlOptions, RunnerOptions, execution_of};

/// Configuration of a runner node. Fields of the same name mean the same as those of a server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunnerNodeOptions {
    pub data_dir: PathBuf,
    /// Addresses of control nodes, `host:port`. Remembered in the data directory.
    pub control: Vec<String>,
    /// Join token. Needed once.
    pub token: Option<String>,
    /// Name for people. Default: the name of the machine.
    pub name: Option<String>,
    /// UDP address for probes of other nodes. Default: port 7071 of all interfaces, or any port if that is in use.
    pub listen: Option<SocketAddr>,
    /// IP address under which other nodes reach this one. Default: the one from which it reaches the control node.
    pub advertise: Option<IpAddr>,
    /// Timings of failure detection, the same on all nodes.
    pub profile: MembershipProfile,
    /// Attributes of this node's runner, for placement.
    pub runner: RunnerOptions,
    pub process_slots: u32,
    pub echo_slots: u32,
    pub wasm_slots: u32,
    pub allow_unsandboxed: bool,
    pub stop_grace_ms: u64,
    pub log_bytes_max: u64,
    pub job_output_bytes_max: u64,
    pub job_tmp_bytes_max: u64,
    pub job_processes_max: u64,
    pub network_topics: Vec<String>,
    pub memory_reserve_bytes: u64,
    pub unclaimed_ms: u64,
    pub sandbox_first_user: u32,
    pub cache_bytes_max: u64,
    /// Limit of the results that wait for the control node, in memory and on disk. Beyond it the node takes no new work.
    pub outbox_bytes_max: u64,
    #[serde(skip)]
    pub spawner_program: Option<PathBuf>,
}

impl Default for RunnerNodeOptions {
    fn default() -> Self {
        let defaults = ControlOptions::default();
        Self {
            data_dir: PathBuf::from("outlast-runner-data"),
            control: Vec::new(),
            token: None,
            name: None,
            listen: None,
            advertise: None,
            profile: MembershipProfile::default(),
            runner: defaults.runner,
            process_slots: defaults.process_slots,
            echo_slots: defaults.echo_slots,
            wasm_slots: defaults.wasm_slots,
            allow_unsandboxed: defaults.allow_unsandboxed,
            stop_grace_ms: defaults.stop_grace_ms,
            log_bytes_max: defaults.log_bytes_max,
            job_output_bytes_max: defaults.job_output_bytes_max,
            job_tmp_bytes_max: defaults.job_tmp_bytes_max,
            job_processes_max: defaults.job_processes_max,
            network_topics: defaults.network_topics,
            memory_reserve_bytes: defaults.memory_reserve_bytes,
            unclaimed_ms: defaults.unclaimed_ms,
            sandbox_first_user: defaults.sandbox_first_user,
            cache_bytes_max: defaults.cache_bytes_max,
            outbox_bytes_max: 256 << 20,
            spawner_program: None,
        }
    }
}

impl RunnerNodeOptions {
    /// Reads a YAML file. Missing keys have their defaults.
    pub fn from_file(file: &Path) -> Result<Self, Error> {
        let problem = |reason: String| Error::Config { file: file.to_owned(), reason };
        let text = std::fs::read_to_string(file).map_err(|error| problem(error.to_string()))?;
        serde_saphyr::from_str(&text).map_err(|error| problem(error.to_string()))
    }

    /// The name of the node for people.
    pub(crate) fn name(&self) -> String {
        self.name.clone().unwrap_or_else(machine_name)
    }

    pub(crate) fn execution(&self) -> Execution {
        execution_of!(self)
    }
}

/// The name of this machine.
pub(crate) fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_overrides_defaults_and_unknown_keys_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("runner.yaml");
        std::fs::write(&file, "control: [\"control:7071\"]\nrunner:\n  labels: {zone: a}\n").unwrap();
        let options = RunnerNodeOptions::from_file(&file).unwrap();
        assert_eq!((options.control[0].as_str(), options.runner.labels["zone"].as_str()), ("control:7071", "a"));
        std::fs::write(&file, "policy: {}\n").unwrap();
        let refused = RunnerNodeOptions::from_file(&file).unwrap_err().to_string();
        assert!(refused.contains("policy"), "{refused}");
    }
}
