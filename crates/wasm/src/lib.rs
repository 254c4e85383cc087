//! Runs WebAssembly components as jobs.
//!
//! A job is a component that exports `wasi:cli/run`. It gets arguments, an environment, standard input
//! and up to two directories; it has no network, and nothing of the host's environment. An [`Executor`]
//! first *prepares* a component by its digest ([`Executor::prepare`]: compile once, keep the result in
//! memory and on disk), then *runs* the [`Program`] as often as asked ([`Executor::run`]).
//!
//! A guest is never trusted. Its memory, time, fuel, output and files are limited ([`Limits`]), and so is
//! what the host allocates on its behalf. Whatever it does ends as a [`Verdict`] about the job: a trap is
//! the job's failure, with the trap's text, never the host's.
//!
//! Guests run on threads of their own, so that one that computes for an hour holds up no one else's
//! asynchronous work. A prepared program that does nothing costs less than ten microseconds, all told.

mod cache;
mod engine;
mod error;
mod executor;
mod files;
mod guest;
mod imports;
mod memory;
mod options;
mod output;
mod pool;
mod program;
mod programs;
mod run;
mod stop;
mod task;
mod text;
mod ticker;
mod verdict;
mod waiting;

pub use error::{Error, Refused, Rejected};
pub use executor::Executor;
pub use options::Options;
pub use pool::Run;
pub use program::{Metering, Program};
pub use stop::Stop;
pub use task::{Ended, Limits, Sink, Stream, Task, Verdict};

use std::time::Duration;

/// How often running guests are asked whether they have to end. A stop or the end of their time reaches
/// a guest that computes after at most about this long; one that waits hears it at once.
pub const TICK: Duration = Duration::from_millis(10);

/// Of what there is to say about a guest's failure this much is kept, in bytes.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// How deep a guest's calls may go, in bytes of native stack.
pub const STACK_BYTES_MAX: usize = 512 << 10;

/// How many core instances, memories and tables one component may consist of.
pub const CORE_INSTANCES_MAX: u32 = 32;
pub const MEMORIES_MAX: u32 = 2;
pub const TABLES_MAX: u32 = 8;

/// How many elements a guest's tables may have, each.
pub const TABLE_ELEMENTS_MAX: usize = 64 << 10;

/// How many things of the host (files, streams, timers) a guest may hold at a time. Each file among them
/// is a file descriptor of this process.
pub const HANDLES_MAX: usize = 1024;

/// How many files, directories and links a guest may make.
pub const ENTRIES_MAX: u32 = 10_000;

/// What a guest may hand to the host in one call, in bytes; never more than it may have itself.
pub const CALL_BYTES_MAX: usize = 64 << 20;

/// How many random bytes a guest may ask for in one call: making them cannot be interrupted.
pub const RANDOM_BYTES_MAX: u64 = 4 << 20;
