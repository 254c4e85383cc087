//! A component that is ready to run.

use std::fmt;
use std::io;

use model::blob::BlobId;
use rustix::io::Errno;
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime_wasi::p2::bindings::sync::CommandPre;

use crate::engine::Machine;
use crate::error::Refused;
use crate::guest::Guest;
use crate::imports;
use crate::text::cut;

/// How a program's use of the processor is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metering {
    /// By time alone, which costs next to nothing.
    Off,
    /// By fuel too: a budget of instructions that is the same on every machine. Tight loops take up to
    /// half as long again or more.
    Fuel,
}

/// A component, compiled and linked; each run is a fresh instance of it.
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

    /// The size of its compiled form.
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

/// Compiles a component; this can take seconds.
pub(crate) fn compile(machine: &Machine, content: &[u8]) -> Result<Vec<u8>, Refused> {
    if Engine::detect_precompiled(content).is_some() {
        return Err(Refused::NotAComponent { why: "it is compiled code already; give the component itself".into() });
    }
    machine
        .engine
        .precompile_component(content)
        .map_err(|error| Refused::NotAComponent { why: explain(content, &error) })
}

/// The engine's words about a core module are hard to understand for whoever just built one.
fn explain(content: &[u8], error: &wasmtime::Error) -> String {
    const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";
    if content.starts_with(CORE_MODULE) {
        return "it is a core module. Build it for WASI 0.2 (such as `wasm32-wasip2`), or turn it into a component"
            .into();
    }
    // The engine lays some of its words out over many lines; a reason is one.
    cut(format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Makes code runnable. The code must be what [`compile`] returned, untouched: see the note on safety.
pub(crate) fn load(machine: &Machine, id: BlobId, metering: Metering, code: &[u8]) -> Result<Program, Refused> {
    #[expect(unsafe_code, reason = "the engine can load compiled code in no other way")]
    // SAFETY: the bytes come from `compile`, either just now or by way of the disk cache, which hands out
    // nothing whose checksum is not that of what was stored.
    let component = unsafe { Component::deserialize(&machine.engine, code) };
    let component = component.map_err(|error| unfit(&error))?;
    let linked = machine.linker.instantiate_pre(&component).map_err(|error| imports::refusal(&component, &error))?;
    let command = CommandPre::new(linked).map_err(|_| Refused::NoEntry)?;
    Ok(Program { id, metering, code_bytes: code.len(), command })
}

/// Code that was just compiled can fail to load for two reasons: what it asks for, or what the system has left.
fn unfit(error: &wasmtime::Error) -> Refused {
    let why = cut(format!("{error:#}"));
    let is_of_system = |cause: &(dyn std::error::Error + 'static)| cause.is::<io::Error>() || cause.is::<Errno>();
    if error.chain().any(is_of_system) { Refused::Host { why } } else { Refused::Unfit { why } }
}
