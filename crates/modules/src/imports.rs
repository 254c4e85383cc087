//! Host functions of the module world.

pub(crate) mod http;
mod jobs;
mod local_store;
mod timers;

use wasm::host::{PollHost, link_poll};
use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker};

use crate::bindings::Module;
use crate::bindings::outlast::module::{clock, logging, random};
use crate::effects::LogLevel;
use crate::guest::Guest;
use crate::limits::RANDOM_BYTES_MAX;

/// Linker with all host functions. WASI is there for what toolchains import anyway: no files, no network, no environment.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?;
    linker.allow_shadowing(true);
    link_poll(&mut linker, |guest: &mut Guest| PollHost {
        table: &mut guest.table,
        stop_conditions: &guest.stop_conditions,
    })?;
    linker.allow_shadowing(false);
    Module::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut Guest| guest)?;
    Ok(linker)
}

impl crate::bindings::outlast::module::types::Host for Guest {}

impl logging::Host for Guest {
    fn log(&mut self, level: logging::Level, text: String) -> wasmtime::Result<()> {
        let level = match level {
            logging::Level::Debug => LogLevel::Debug,
            logging::Level::Info => LogLevel::Info,
            logging::Level::Warn => LogLevel::Warn,
            logging::Level::Error => LogLevel::Error,
        };
        self.log(level, text);
        Ok(())
    }
}

impl clock::Host for Guest {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(self.invocation()?.now.0)
    }
}

impl random::Host for Guest {
    fn bytes(&mut self, count: u32) -> wasmtime::Result<Vec<u8>> {
        let mut bytes = vec![0; (count as usize).min(RANDOM_BYTES_MAX)];
        getrandom::fill(&mut bytes).map_err(|error| wasmtime::Error::msg(format!("no random numbers: {error}")))?;
        Ok(bytes)
    }
}
