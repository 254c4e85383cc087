//! Failures of an invocation. They end the instance.

use wasm::host::{Interrupt, MemoryLimiter, truncate};
use wasmtime::Trap;

/// Why an invocation failed, with the text for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    pub kind: FailureKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Trap,
    OutOfFuel,
    TimedOut,
    OutOfMemory,
    /// `init` returned an error.
    Init,
    /// A reply, or the effects, exceeded their limit.
    TooLarge,
    /// Stopped by the host.
    Stopped,
    /// State could not be read. Not the module's fault.
    StateUnavailable,
    /// The host could not run the instance. Not the module's fault.
    Host,
}

impl FailureKind {
    /// Whether the module, or the event, caused the failure.
    pub fn is_of_module(self) -> bool {
        match self {
            Self::Trap | Self::OutOfFuel | Self::TimedOut | Self::OutOfMemory | Self::Init | Self::TooLarge => true,
            Self::Stopped | Self::StateUnavailable | Self::Host => false,
        }
    }
}

/// State could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state cannot be read: {0}")]
pub(crate) struct StateUnavailable(pub String);

/// Effects beyond their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the invocation changes more than {0} bytes")]
pub(crate) struct TooLarge(pub usize);

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: truncate(text.into()) }
    }

    /// The failure that an error of the engine means.
    pub(crate) fn of(error: &wasmtime::Error, memory: &MemoryLimiter) -> Self {
        let kind = if let Some(interrupt) = error.downcast_ref::<Interrupt>() {
            match interrupt {
                Interrupt::TimedOut => FailureKind::TimedOut,
                Interrupt::Stopped => FailureKind::Stopped,
            }
        } else if error.is::<StateUnavailable>() {
            FailureKind::StateUnavailable
        } else if error.is::<TooLarge>() {
            FailureKind::TooLarge
        } else if error.downcast_ref::<Trap>() == Some(&Trap::OutOfFuel) {
            FailureKind::OutOfFuel
        } else if memory.was_refused() {
            // Guests that get no memory end with a trap of their own.
            FailureKind::OutOfMemory
        } else {
            FailureKind::Trap
        };
        Self::new(kind, format!("{error:#}"))
    }
}
