//! Errors before a guest runs. Failures of a running guest are reported as [`GuestExit`](crate::GuestExit).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The executor cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("the compilation cache `{}` belongs to another user. Choose another directory", path.display())]
    ForeignCache { path: PathBuf },

    #[error("the WebAssembly executor must be created inside a tokio runtime")]
    NoRuntime,
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}

/// Reason why a component cannot be prepared. All but the last two depend only on its content and are permanent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    #[error("the component has {bytes} bytes; the limit is {bytes_max} bytes")]
    TooLarge { bytes: usize, bytes_max: usize },

    #[error("this is not a WebAssembly component: {why}")]
    NotAComponent { why: String },

    #[error(
        "the component has unavailable imports: {}. Jobs get WASI 0.2 (`wasi:cli/imports`) without a network",
        names.join(", ")
    )]
    ForbiddenImports { names: Vec<String> },

    /// The interface is available, but not with the expected functions or types.
    #[error("the component's imports do not match: {why}")]
    WrongImport { why: String },

    #[error("the component does not export `wasi:cli/run@0.2`: build it as a command, not as a library")]
    NoEntry,

    /// The component has more parts, or a larger initial memory, than a slot allows.
    #[error("the component does not fit into a slot of this node: {why}")]
    Unfit { why: String },

    /// The content could not be read; a retry may succeed.
    #[error("the component's content cannot be read: {why}")]
    Unavailable { why: String },

    /// This node cannot compile or load components; another node may.
    #[error("this node cannot run WebAssembly: {why}")]
    Host { why: String },
}

impl PrepareError {
    /// Whether every retry with the same component fails in the same way.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::TooLarge { .. }
            | Self::NotAComponent { .. }
            | Self::ForbiddenImports { .. }
            | Self::WrongImport { .. }
            | Self::NoEntry
            | Self::Unfit { .. } => true,
            Self::Unavailable { .. } | Self::Host { .. } => false,
        }
    }
}

/// A run was not accepted. It had no effect and its callback is not called.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SubmitError {
    #[error(
        "{queued} WebAssembly runs are waiting for a slot, the limit is {queued_max}. Try again when some have ended"
    )]
    Full { queued: usize, queued_max: usize },

    #[error("cannot start a thread to run WebAssembly: {0}")]
    NoThread(Arc<io::Error>),
}
