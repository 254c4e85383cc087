//! How a node runs attempts: the part of the configuration that control nodes and runner nodes have in common.

use std::path::PathBuf;

use super::governance::RunnerOptions;

/// Memory per process slot, for the default number of slots.
const PROCESS_MEMORY_BYTES: u64 = 256 << 20;

/// The fields are those of [`super::Options`].
#[derive(Debug, Clone)]
pub(crate) struct Execution {
    pub process_slots: u32,
    pub echo_slots: u32,
    pub wasm_slots: u32,
    pub allow_unsandboxed: bool,
    pub runner: RunnerOptions,
    pub stop_grace_ms: u64,
    pub log_bytes_max: u64,
    pub job_output_bytes_max: u64,
    pub job_tmp_bytes_max: u64,
    pub job_processes_max: u64,
    pub network_topics: Vec<String>,
    pub memory_reserve_bytes: u64,
    pub unclaimed_ms: u64,
    pub sandbox_first_user: u32,
    pub spawner_program: Option<PathBuf>,
}

/// The execution part of the options of a control node or a runner node, whose fields have the same names.
macro_rules! execution_of {
    ($options:expr) => {
        $crate::options::Execution {
            process_slots: $options.process_slots,
            echo_slots: $options.echo_slots,
            wasm_slots: $options.wasm_slots,
            allow_unsandboxed: $options.allow_unsandboxed,
            runner: $options.runner.clone(),
            stop_grace_ms: $options.stop_grace_ms,
            log_bytes_max: $options.log_bytes_max,
            job_output_bytes_max: $options.job_output_bytes_max,
            job_tmp_bytes_max: $options.job_tmp_bytes_max,
            job_processes_max: $options.job_processes_max,
            network_topics: $options.network_topics.clone(),
            memory_reserve_bytes: $options.memory_reserve_bytes,
            unclaimed_ms: $options.unclaimed_ms,
            sandbox_first_user: $options.sandbox_first_user,
            spawner_program: $options.spawner_program.clone(),
        }
    };
}
pub(crate) use execution_of;

pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

impl Execution {
    /// Default: two per core, limited by memory.
    pub fn process_slots(&self) -> u32 {
        match self.process_slots {
            0 => {
                let memory = runner::pressure::total_memory().unwrap_or(u64::MAX);
                (2 * cores()).min(u32::try_from(memory / PROCESS_MEMORY_BYTES).unwrap_or(u32::MAX)).max(1)
            }
            slots => slots,
        }
    }

    /// Threads of the server that run components. More than cores, since some threads wait.
    pub fn wasm_threads(&self) -> u32 {
        (4 * cores()).min(self.wasm_slots).max(1)
    }

    pub fn memory_reserve_bytes(&self) -> u64 {
        match self.memory_reserve_bytes {
            0 => runner::pressure::total_memory().unwrap_or(0) / 20,
            bytes => bytes,
        }
    }

    /// Executable of the spawner. Default: this program.
    pub fn spawner_program(&self) -> PathBuf {
        self.spawner_program.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
    }
}
