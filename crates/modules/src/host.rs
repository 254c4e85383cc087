//! Compiles modules and keeps their engines.

use std::path::PathBuf;
use std::sync::Arc;

use model::blob::BlobId;
use wasm::host::{CodeCache, Compiled, EngineFingerprint, SlotConfig, create_engine, fingerprint};
use wasm::{Metering, PrepareError};
use wasmtime::Engine;
use wasmtime::component::Linker;

use crate::code::Code;
use crate::guest::Guest;
use crate::imports;
use crate::ticker::Ticker;

/// Settings of a host.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of compiled code.
    pub cache: PathBuf,
    pub cache_bytes_max: u64,
    /// Maximum size of a component.
    pub component_bytes_max: usize,
    /// Instances at a time.
    pub instances_max: u32,
    /// Upper bound of an instance's memory.
    pub memory_bytes_max: u64,
}

impl Options {
    pub fn new(cache: PathBuf) -> Self {
        Self {
            cache,
            cache_bytes_max: 1 << 30,
            component_bytes_max: 64 << 20,
            instances_max: 256,
            memory_bytes_max: 256 << 20,
        }
    }
}

/// Host of modules. Cheap to clone.
#[derive(Clone)]
pub struct Host(Arc<Inner>);

struct Inner {
    options: Options,
    cache: CodeCache,
    unmetered: LinkedEngine,
    metered: LinkedEngine,
    ticker: Arc<Ticker>,
}

struct LinkedEngine {
    engine: Engine,
    linker: Linker<Guest>,
    fingerprint: EngineFingerprint,
}

impl LinkedEngine {
    fn new(metering: Metering, options: &Options) -> wasmtime::Result<Self> {
        let slots = SlotConfig { slots: options.instances_max, memory_bytes_max: options.memory_bytes_max };
        let engine = create_engine(metering, slots)?;
        let linker = imports::linker(&engine)?;
        let fingerprint = fingerprint(&engine);
        Ok(Self { engine, linker, fingerprint })
    }
}

impl Host {
    pub fn new(options: Options) -> Result<Self, PrepareError> {
        let failed = |why: String| PrepareError::Host { why };
        let cache =
            CodeCache::open(&options.cache, options.cache_bytes_max).map_err(|error| failed(error.to_string()))?;
        let engine = |metering| LinkedEngine::new(metering, &options).map_err(|error| failed(format!("{error:#}")));
        let (unmetered, metered) = (engine(Metering::Off)?, engine(Metering::Fuel)?);
        let engines = vec![unmetered.engine.clone(), metered.engine.clone()];
        let ticker = Ticker::start(engines).map_err(|error| failed(error.to_string()))?;
        Ok(Self(Arc::new(Inner { options, cache, unmetered, metered, ticker: Arc::new(ticker) })))
    }

    /// Compiles a component, or loads it from the disk cache. `content` is read only if it must be compiled. May take
    /// seconds.
    pub fn code(
        &self,
        id: BlobId,
        metering: Metering,
        content: impl FnOnce() -> std::io::Result<Vec<u8>>,
    ) -> Result<Code, PrepareError> {
        let LinkedEngine { engine, linker, fingerprint } = self.engine(metering);
        if let Some(compiled) = Compiled::load(&self.0.cache, engine, fingerprint, id)? {
            return Code::link(linker, id, metering, &compiled, self.0.ticker.clone());
        }
        let content = content().map_err(|error| PrepareError::Unavailable { why: error.to_string() })?;
        let bytes_max = self.0.options.component_bytes_max;
        if content.len() > bytes_max {
            return Err(PrepareError::TooLarge { bytes: content.len(), bytes_max });
        }
        let compiled = Compiled::new(engine, id, &content)?;
        let code = Code::link(linker, id, metering, &compiled, self.0.ticker.clone())?;
        // Only components that are modules are cached.
        compiled.store(&self.0.cache, fingerprint, id);
        Ok(code)
    }

    fn engine(&self, metering: Metering) -> &LinkedEngine {
        match metering {
            Metering::Off => &self.0.unmetered,
            Metering::Fuel => &self.0.metered,
        }
    }
}
