//! What can go wrong before a guest runs. What goes wrong while it runs is a [`Verdict`](crate::Verdict).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The executor cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("the directory of compiled components `{}` belongs to another user. Choose another one", path.display())]
    ForeignCache { path: PathBuf },

    #[error("the executor needs a tokio runtime: make it inside one")]
    NoRuntime,
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}

/// Why a component will not be run. All but the last two are about its content, so they are final.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the component has {bytes} bytes; the limit is {bytes_max} bytes")]
    TooLarge { bytes: usize, bytes_max: usize },

    #[error("this is not a WebAssembly component: {why}")]
    NotAComponent { why: String },

    #[error(
        "the component imports what no job gets: {}. Jobs get WASI 0.2 (`wasi:cli/imports`) without a network",
        names.join(", ")
    )]
    ForbiddenImports { names: Vec<String> },

    /// The interface is known, but not what the component expects of it.
    #[error("the component's imports do not fit: {why}")]
    WrongImport { why: String },

    #[error("the component does not export `wasi:cli/run@0.2`: build it as a command, not as a library")]
    NoEntry,

    /// It has more parts, or wants more memory to begin with, than a slot has room for.
    #[error("the component does not fit into a slot of this node: {why}")]
    Unfit { why: String },

    /// Its bytes could not be had; asking again may help.
    #[error("the component's content cannot be read: {why}")]
    Unavailable { why: String },

    /// This node cannot compile or load anything; another one may.
    #[error("this node cannot run WebAssembly: {why}")]
    Host { why: String },
}

impl Refused {
    /// Whether asking again with the same component can only give the same answer.
    pub fn is_final(&self) -> bool {
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

/// A run was not taken: nothing of it has happened, and nobody will be told of its end.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Rejected {
    #[error("{queued} runs wait for a slot already, the limit is {queued_max}. Try again when some have ended")]
    Full { queued: usize, queued_max: usize },

    #[error("no thread can be started to run WebAssembly: {0}")]
    NoThread(Arc<io::Error>),
}
