//! Compilation and loading of components.

use std::fmt;
use std::io;

use model::blob::BlobId;
use rustix::io::Errno;
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime_wasi::p2::bindings::sync::CommandPre;

use crate::engine::GuestEngine;
use crate::error::PrepareError;
use crate::guest::Guest;
use crate::imports;
use crate::truncate::truncate;

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

/// Compiles a component. May take seconds.
pub(crate) fn compile(engine: &GuestEngine, content: &[u8]) -> Result<Vec<u8>, PrepareError> {
    if Engine::detect_precompiled(content).is_some() {
        return Err(PrepareError::NotAComponent {
            why: "it is already compiled code; upload the component itself".into(),
        });
    }
    engine
        .engine
        .precompile_component(content)
        .map_err(|error| PrepareError::NotAComponent { why: explain(content, &error) })
}

/// Reason for a compile error. Replaces the engine's message for a core module, which is hard to understand.
fn explain(content: &[u8], error: &wasmtime::Error) -> String {
    const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";
    if content.starts_with(CORE_MODULE) {
        return "it is a core module. Build it for WASI 0.2 (such as `wasm32-wasip2`), or convert it to a component"
            .into();
    }
    // Some messages of the engine have several lines; a reason has one.
    truncate(format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Loads and links compiled code. The code must be the unmodified result of [`compile`]; see the safety note.
pub(crate) fn load(engine: &GuestEngine, id: BlobId, metering: Metering, code: &[u8]) -> Result<Program, PrepareError> {
    #[expect(unsafe_code, reason = "the engine has no safe function to load compiled code")]
    // SAFETY: the bytes come from `compile`, either directly or through the disk cache, which returns only code whose
    // checksum matches the stored one.
    let component = unsafe { Component::deserialize(&engine.engine, code) };
    let component = component.map_err(|error| load_error(&error))?;
    let linked = engine.linker.instantiate_pre(&component).map_err(|error| imports::link_error(&component, &error))?;
    let command = CommandPre::new(linked).map_err(|_| PrepareError::NoEntry)?;
    Ok(Program { id, metering, code_bytes: code.len(), command })
}

/// Loading fails either because of the component's requirements or because of the system's resources.
fn load_error(error: &wasmtime::Error) -> PrepareError {
    let why = truncate(format!("{error:#}"));
    let is_system_error = |cause: &(dyn std::error::Error + 'static)| cause.is::<io::Error>() || cause.is::<Errno>();
    if error.chain().any(is_system_error) { PrepareError::Host { why } } else { PrepareError::Unfit { why } }
}
