//! Host state of an instance.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use wasm::host::{MemoryLimiter, Output, Pipe, StopConditions};
use wasm::{Sink, Stop, Stream};
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::effects::{Effects, LogLevel, LogLine};
use crate::failure::TooLarge;
use crate::invocation::{Capabilities, Invocation};
use crate::limits::{HANDLES_MAX, LOG_BYTES_MAX, Limits, RANDOM_BYTES_MAX};

/// Data of an instance's Wasmtime store.
pub(crate) struct Guest {
    wasi: WasiCtx,
    pub table: ResourceTable,
    pub memory: MemoryLimiter,
    pub stop_conditions: StopConditions,
    pub limits: Limits,
    pub capabilities: Capabilities,
    printed: Arc<Printed>,
    current: Current,
}

/// The invocation in progress and what it has changed so far.
struct Current {
    invocation: Option<Invocation>,
    effects: Effects,
    effects_bytes: usize,
    log_bytes: usize,
}

/// Standard output and error of the instance since the last invocation.
#[derive(Default)]
struct Printed(Mutex<PrintedText>);

#[derive(Default)]
struct PrintedText {
    text: Vec<u8>,
    dropped_bytes: u64,
}

impl Sink for Printed {
    fn write(&self, _: Stream, bytes: &[u8]) {
        let mut printed = self.0.lock();
        let accepted = LOG_BYTES_MAX.saturating_sub(printed.text.len()).min(bytes.len());
        printed.text.extend_from_slice(&bytes[..accepted]);
        printed.dropped_bytes += (bytes.len() - accepted) as u64;
    }
}

impl Guest {
    pub fn new(limits: Limits, capabilities: Capabilities) -> Self {
        let printed = Arc::new(Printed::default());
        let output = Arc::new(Output::new(printed.clone(), u64::MAX));
        let mut wasi = WasiCtx::builder();
        wasi.stdout(Pipe { output: output.clone(), stream: Stream::Stdout })
            .stderr(Pipe { output, stream: Stream::Stderr })
            // Modules run on threads of their own, so blocking is fine.
            .allow_blocking_current_thread(true)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(RANDOM_BYTES_MAX as u64);
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        Self {
            wasi: wasi.build(),
            table,
            memory: MemoryLimiter::new(limits.memory_bytes),
            stop_conditions: StopConditions { stop: Stop::new(), deadline: None },
            limits,
            capabilities,
            printed,
            current: Current { invocation: None, effects: Effects::default(), effects_bytes: 0, log_bytes: 0 },
        }
    }

    /// Begins an invocation without effects.
    pub fn begin(&mut self, invocation: Invocation) {
        self.current =
            Current { invocation: Some(invocation), effects: Effects::default(), effects_bytes: 0, log_bytes: 0 };
    }

    /// Ends the invocation.
    pub fn end(&mut self) -> Effects {
        let printed = std::mem::take(&mut *self.printed.0.lock());
        for line in String::from_utf8_lossy(&printed.text).lines() {
            self.log(LogLevel::Info, line.to_owned());
        }
        self.current.invocation = None;
        let mut effects = std::mem::take(&mut self.current.effects);
        effects.log_bytes_dropped += printed.dropped_bytes;
        effects
    }

    /// The invocation in progress. Host functions are called during one only.
    pub fn invocation(&self) -> wasmtime::Result<&Invocation> {
        self.current.invocation.as_ref().ok_or_else(|| wasmtime::Error::msg("no invocation is in progress"))
    }

    /// The effects, to be changed; an error for queries.
    pub fn effects(&mut self) -> wasmtime::Result<&mut Effects> {
        if self.invocation()?.is_query {
            return Err(wasmtime::Error::msg("a query cannot change anything"));
        }
        Ok(&mut self.current.effects)
    }

    pub fn changed(&self, name: &str) -> Option<&Option<Bytes>> {
        self.current.effects.changes.get(name)
    }

    pub fn effects_so_far(&self) -> &Effects {
        &self.current.effects
    }

    /// Counts bytes of effects. Beyond the limit the invocation fails.
    pub fn charge(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.current.effects_bytes = self.current.effects_bytes.saturating_add(bytes);
        let bytes_max = self.limits.effects_bytes;
        if self.current.effects_bytes > bytes_max { Err(TooLarge(bytes_max)) } else { Ok(()) }
    }

    /// Adds a log line, cut where the limit is reached.
    pub fn log(&mut self, level: LogLevel, mut text: String) {
        let left = LOG_BYTES_MAX.saturating_sub(self.current.log_bytes);
        let bytes = text.len();
        text.truncate(text.floor_char_boundary(left));
        self.current.effects.log_bytes_dropped += (bytes - text.len()) as u64;
        // A line takes memory even if it is empty.
        self.current.log_bytes += text.len() + 1;
        if left > 0 {
            self.current.effects.log.push(LogLine { level, text });
        }
    }
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
