//! Programs: linked components that run as jobs.

use std::fmt;

use model::blob::BlobId;
use wasmtime::Engine;
use wasmtime_wasi::p2::bindings::sync::CommandPre;

use crate::compiled::Compiled;
use crate::engine::GuestEngine;
use crate::error::PrepareError;
use crate::guest::Guest;
use crate::imports;

/// Metering of a program's CPU use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metering {
    /// Only time limits, with negligible overhead.
    Off,
    /// Fuel: a budget of instructions that is the same on every machine. Tight loops take 50% longer or more.
    Fuel,
}

/// Compiled and linked component. Each run is a fresh instance.
pub struct Program {
    id: BlobId,
    metering: Metering,
    code_bytes: usize,
    pub(crate) command: CommandPre<Guest>,
}

impl Program {
    pub fn id(&self) -> BlobId {
        self.id
    }

    pub fn metering(&self) -> Metering {
        self.metering
    }

    /// Size of the compiled code.
    pub fn code_bytes(&self) -> usize {
        self.code_bytes
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.command.engine()
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("id", &self.id).field("metering", &self.metering).finish_non_exhaustive()
    }
}

/// Links a compiled component.
pub(crate) fn link(
    engine: &GuestEngine,
    id: BlobId,
    metering: Metering,
    compiled: &Compiled,
) -> Result<Program, PrepareError> {
    let component = compiled.component();
    let linked = engine.linker.instantiate_pre(component).map_err(|error| imports::link_error(component, &error))?;
    let command = CommandPre::new(linked).map_err(|_| PrepareError::NoEntry)?;
    Ok(Program { id, metering, code_bytes: compiled.code_bytes(), command })
}
