//! All that the host keeps for one running guest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::component::ResourceTable;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView};

use crate::files::Quota;
use crate::memory::Memory;
use crate::output::{Output, Pipe};
use crate::stop::Stop;
use crate::task::{Stream, Task};
use crate::waiting::Bounds;
use crate::{HANDLES_MAX, RANDOM_BYTES_MAX};

/// Where a guest finds its directories. Paths relative to where it starts, such as `inputs`, lead there too.
const INPUTS: &str = "/inputs";
const OUTPUTS: &str = "/outputs";

/// The state of a guest's store.
pub(crate) struct Guest {
    wasi: WasiCtx,
    pub table: ResourceTable,
    pub memory: Memory,
    pub bounds: Bounds,
    pub quota: Quota,
    pub output: Arc<Output>,
}

impl Guest {
    /// Fails if a directory cannot be opened, with the reason.
    pub fn new(task: Task, memory_bytes_max: u64, stop: Stop) -> Result<Self, String> {
        let limits = task.limits;
        let output = Arc::new(Output::new(task.sink, limits.output_bytes));
        let mut wasi = WasiCtx::builder();
        wasi.args(&task.args)
            .envs(&task.env)
            .initial_cwd("/")
            .stdout(Pipe { output: output.clone(), stream: Stream::Stdout })
            .stderr(Pipe { output: output.clone(), stream: Stream::Stderr })
            // The thread is the guest's own: it may as well wait for the disk.
            .allow_blocking_current_thread(true)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(RANDOM_BYTES_MAX);
        if !task.stdin.is_empty() {
            wasi.stdin(MemoryInputPipe::new(task.stdin));
        }
        let directories = [(&task.inputs, INPUTS, FsPerms::ReadOnly), (&task.outputs, OUTPUTS, FsPerms::ReadWrite)];
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
            memory: Memory::new(limits.memory_bytes.min(memory_bytes_max)),
            bounds: Bounds { stop, deadline: limits.wall.and_then(deadline) },
            quota: Quota::new(limits.file_bytes),
            output,
        })
    }
}

/// A time too far away to be told is no limit.
fn deadline(wall: Duration) -> Option<Instant> {
    Instant::now().checked_add(wall)
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
