//! Runs WebAssembly components as jobs.
//!
//! The component exports `wasi:cli/run`. It gets arguments, an environment, standard input and up to two directories.
//! It has no network and no access to the host's environment. An [`Executor`] first *prepares* a component by its
//! digest ([`Executor::prepare`]: compile once, cache in memory and on disk), then *runs* the [`Program`] any number of
//! times ([`Executor::run`]).
//!
//! A guest is untrusted. Its memory, time, fuel, output and files are limited ([`Limits`]), and so are the host's
//! allocations on its behalf. Every run ends with a [`GuestExit`]. A trap is a failure of the job, with the trap's
//! text, and never affects the host.
//!
//! Guests run on dedicated threads, so that a long computation does not block asynchronous work. A run of a prepared
//! no-op program costs less than ten microseconds in total.

mod code_cache;
mod compiled;
mod engine;
mod error;
mod executor;
mod exit;
mod file_quota;
mod guest;
mod imports;
mod interrupt;
mod memory_limit;
mod options;
mod output;
mod pool;
mod program;
mod program_cache;
mod run;
mod spec;
mod stop;
mod ticker;
mod truncate;

pub use error::{Error, PrepareError, SubmitError};
pub use executor::Executor;
pub use options::Options;
pub use pool::Run;
pub use program::{Metering, Program};
pub use spec::{GuestExit, Limits, RunOutcome, RunSpec, Sink, Stream};
pub use stop::Stop;

/// Parts for other hosts of components.
pub mod host {
    pub use crate::code_cache::CodeCache;
    pub use crate::compiled::Compiled;
    pub use crate::engine::{EngineFingerprint, SlotConfig, create as create_engine, fingerprint};
    pub use crate::interrupt::{Interrupt, PollHost, StopConditions, link as link_poll};
    pub use crate::memory_limit::MemoryLimiter;
    pub use crate::output::{Output, Pipe};
    pub use crate::truncate::truncate;
}

use std::time::Duration;

/// Interval at which running guests are checked for a stop or deadline. It is the maximum delay, approximately, for a
/// computing guest; a waiting guest is interrupted immediately.
pub const TICK: Duration = Duration::from_millis(10);

/// Maximum length of a failure text, in bytes.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// Maximum call depth of a guest, in bytes of native stack.
pub const STACK_BYTES_MAX: usize = 512 << 10;

/// Core instances, memories and tables of one component.
pub const CORE_INSTANCES_MAX: u32 = 32;
pub const MEMORIES_MAX: u32 = 2;
pub const TABLES_MAX: u32 = 8;

/// Elements of each table of a guest.
pub const TABLE_ELEMENTS_MAX: usize = 64 << 10;

/// Host resources (files, streams, timers) that a guest may hold at a time. Each file is a file descriptor of this
/// process.
pub const HANDLES_MAX: usize = 1024;

/// Files, directories and links that a guest may create.
pub const ENTRIES_MAX: u32 = 10_000;

/// Data that a guest may pass to the host in one call, in bytes; also limited by the guest's memory limit.
pub const CALL_BYTES_MAX: usize = 64 << 20;

/// Random bytes that a guest may request in one call; generating them cannot be interrupted.
pub const RANDOM_BYTES_MAX: u64 = 4 << 20;
