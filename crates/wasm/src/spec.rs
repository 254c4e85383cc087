//! Input and outcome of a run.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// Input of one run of a program.
#[derive(Clone)]
pub struct RunSpec {
    /// The first is, by convention, the program's name.
    pub args: Vec<String>,
    /// The complete environment; nothing is inherited from the host.
    pub env: Vec<(String, String)>,
    pub stdin: Bytes,
    /// Directory that the guest sees read-only as `/inputs`.
    pub inputs: Option<PathBuf>,
    /// Directory that the guest sees as `/outputs`, readable and writable. It may contain symbolic links to anywhere
    /// afterwards; the guest cannot follow them out of the directory, and the collector of outputs must not.
    pub outputs: Option<PathBuf>,
    pub limits: Limits,
    /// Receives standard output and standard error.
    pub sink: Arc<dyn Sink>,
}

impl fmt::Debug for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Environment and standard input are omitted, since they may contain secrets.
        f.debug_struct("RunSpec").field("args", &self.args).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Resource limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Total of all memories. Growth beyond it fails in the guest.
    pub memory_bytes: u64,
    /// Deterministic budget of instructions. The program must be prepared with
    /// [`Metering::Fuel`](crate::Metering::Fuel).
    pub fuel: Option<u64>,
    /// Time since the guest began to run; enforced with a delay of about [`TICK`](crate::TICK).
    pub wall: Option<Duration>,
    /// Total of standard output and standard error. The excess is discarded; the run continues.
    pub output_bytes: u64,
    /// Total written to files, including data later overwritten or removed. Beyond it writes fail with
    /// `insufficient-space`.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, fuel: None, wall: None, output_bytes: 10 << 20, file_bytes: 1 << 30 }
    }
}

/// Standard output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Receiver of a guest's output.
pub trait Sink: Send + Sync + 'static {
    /// Called in order on the guest's thread. The guest is blocked and cannot be stopped meanwhile.
    fn write(&self, stream: Stream, bytes: &[u8]);
}

/// Result and resource usage of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    pub exit: GuestExit,
    /// CPU time of the thread, including host functions.
    pub cpu: Duration,
    /// Peak total of all memories.
    pub memory_peak_bytes: u64,
    /// `None` without a fuel limit.
    pub fuel_used: Option<u64>,
    /// Output discarded beyond the limit.
    pub output_truncated_bytes: u64,
}

/// How a guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestExit {
    Succeeded,
    /// The guest reported a failure. An error without a code counts as 1.
    ExitCode(u8),
    /// The guest trapped, or exceeded a limit of a host call. The text contains the reason and the backtrace.
    Trapped(String),
    OutOfFuel,
    TimedOut,
    /// The guest trapped after a refused memory growth, or its initial memory exceeds the limit.
    OutOfMemory(String),
    Stopped,
    /// Failure of the host; the run may succeed on another node.
    HostFailed(String),
}
