//! Host state of a running guest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::component::ResourceTable;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView};

use crate::file_quota::Quota;
use crate::interrupt::StopConditions;
use crate::memory_limit::MemoryLimiter;
use crate::output::{Output, Pipe};
use crate::spec::{RunSpec, Stream};
use crate::stop::Stop;
use crate::{HANDLES_MAX, RANDOM_BYTES_MAX};

/// Paths of the guest's directories. Relative paths such as `inputs` work too, since the working directory is `/`.
const INPUTS: &str = "/inputs";
const OUTPUTS: &str = "/outputs";

/// Data of a guest's Wasmtime store.
pub(crate) struct Guest {
    wasi: WasiCtx,
    pub table: ResourceTable,
    pub memory: MemoryLimiter,
    pub stop_conditions: StopConditions,
    pub quota: Quota,
    pub output: Arc<Output>,
}

impl Guest {
    /// Fails with a reason if a directory cannot be opened.
    pub fn new(spec: RunSpec, memory_bytes_max: u64, stop: Stop) -> Result<Self, String> {
        let limits = spec.limits;
        let output = Arc::new(Output::new(spec.sink, limits.output_bytes));
        let mut wasi = WasiCtx::builder();
        wasi.args(&spec.args)
            .envs(&spec.env)
            .initial_cwd("/")
            .stdout(Pipe { output: output.clone(), stream: Stream::Stdout })
            .stderr(Pipe { output: output.clone(), stream: Stream::Stderr })
            // The thread is dedicated to the guest, so blocking I/O is fine.
            .allow_blocking_current_thread(true)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(RANDOM_BYTES_MAX);
        if !spec.stdin.is_empty() {
            wasi.stdin(MemoryInputPipe::new(spec.stdin));
        }
        let directories = [(&spec.inputs, INPUTS, FsPerms::ReadOnly), (&spec.outputs, OUTPUTS, FsPerms::ReadWrite)];
        for (directory, name, permissions) in directories {
            if let Some(directory) = directory {
                wasi.preopened_dir(directory, name, permissions)
                    .map_err(|error| format!("cannot open the directory for {name}: {error:#}"))?;
            }
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        Ok(Self {
            wasi: wasi.build(),
            table,
            memory: MemoryLimiter::new(limits.memory_bytes.min(memory_bytes_max)),
            stop_conditions: StopConditions { stop, deadline: limits.wall.and_then(deadline) },
            quota: Quota::new(limits.file_bytes),
            output,
        })
    }
}

/// A duration beyond the clock's range means no limit.
fn deadline(wall: Duration) -> Option<Instant> {
    Instant::now().checked_add(wall)
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
