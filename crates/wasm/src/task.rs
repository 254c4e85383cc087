//! What a run is given, and how it ended.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// One run of a program.
#[derive(Clone)]
pub struct Task {
    /// The first is by custom the program's name.
    pub args: Vec<String>,
    /// All of its environment: nothing comes from the host.
    pub env: Vec<(String, String)>,
    pub stdin: Bytes,
    /// A directory that the guest may read, as `/inputs`.
    pub inputs: Option<PathBuf>,
    /// A directory that the guest may read and write, as `/outputs`. It may leave symbolic links there
    /// that point anywhere; the guest cannot follow them out, and whoever collects the files must not.
    pub outputs: Option<PathBuf>,
    pub limits: Limits,
    /// Where what it prints goes.
    pub sink: Arc<dyn Sink>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the environment nor the input: they may hold secrets.
        f.debug_struct("Task").field("args", &self.args).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What a run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of all its memories together. Beyond it they do not grow, as the guest is told.
    pub memory_bytes: u64,
    /// A deterministic budget of instructions. The program must be prepared for it, with
    /// [`Metering::Fuel`](crate::Metering::Fuel).
    pub fuel: Option<u64>,
    /// From when it begins to run; reached within [`TICK`](crate::TICK) or so.
    pub wall: Option<Duration>,
    /// Of standard output and standard error together. What is beyond is cut; the run goes on.
    pub output_bytes: u64,
    /// What may be written to files, whether or not it is overwritten or removed later. Beyond it the guest
    /// is told that there is no space.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, fuel: None, wall: None, output_bytes: 10 << 20, file_bytes: 1 << 30 }
    }
}

/// One of the two ways to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Takes what a guest prints.
pub trait Sink: Send + Sync + 'static {
    /// Called on the guest's thread, in order; the guest waits and cannot be stopped meanwhile.
    fn write(&self, stream: Stream, bytes: &[u8]);
}

/// How a run ended and what it used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub verdict: Verdict,
    /// The processor time of its thread, with all the host did for it.
    pub cpu: Duration,
    /// The most that its memories had together.
    pub memory_peak_bytes: u64,
    /// If it had a budget.
    pub fuel_used: Option<u64>,
    /// What was printed beyond the limit.
    pub output_cut_bytes: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Succeeded,
    /// It said that it failed. A plain error counts as 1.
    ExitCode(u8),
    /// It did what a program must not do, or asked the host for more than it may have. The text says what and where.
    Trapped(String),
    OutOfFuel,
    TimedOut,
    /// It trapped after it was refused memory, or could not even begin with what it may have.
    OutOfMemory(String),
    Stopped,
    /// Not its fault: it may succeed elsewhere.
    HostFailed(String),
}
