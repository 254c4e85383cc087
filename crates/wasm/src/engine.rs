//! Wasmtime engines, one per metering mode.
//!
//! An engine is created on first use, so a node without WebAssembly jobs has no cost. The memory of its slots is
//! reserved address space, committed only where guests touch it.

use std::hash::{Hash as _, Hasher};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

use wasmtime::component::Linker;
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::error::PrepareError;
use crate::guest::Guest;
use crate::program::Metering;
use crate::{CORE_INSTANCES_MAX, MEMORIES_MAX, STACK_BYTES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX, imports};

/// Stack frames shown in the text of a trap.
const BACKTRACE_FRAMES_MAX: NonZeroUsize = NonZeroUsize::new(20).expect("20 is not zero");

/// Memory, and bytes of each table, that a slot retains for the next guest: zeroing a little memory is cheaper than
/// returning it to the system and faulting it in again.
const RESIDENT_MEMORY_BYTES: usize = 64 << 10;
const RESIDENT_TABLE_BYTES: usize = 4 << 10;

/// Number and size of slots.
#[derive(Debug, Clone, Copy)]
pub struct SlotConfig {
    pub slots: u32,
    pub memory_bytes_max: u64,
}

/// Engine with the linker of its host functions.
pub(crate) struct GuestEngine {
    pub engine: Engine,
    pub linker: Linker<Guest>,
    /// Version and configuration. Compiled code is valid only for an engine with the same fingerprint.
    pub fingerprint: EngineFingerprint,
}

impl GuestEngine {
    fn new(metering: Metering, slots: SlotConfig) -> wasmtime::Result<Self> {
        let engine = create(metering, slots)?;
        let linker = imports::linker(&engine)?;
        let fingerprint = fingerprint(&engine);
        Ok(Self { engine, linker, fingerprint })
    }
}

/// An engine with pooled slots.
pub fn create(metering: Metering, slots: SlotConfig) -> wasmtime::Result<Engine> {
    let mut config = config(metering);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling(slots)));
    Engine::new(&config).or_else(|error| {
        // With limited address space, memory is allocated per guest: slower, with the same limits.
        tracing::warn!(%error, "cannot reserve address space for WebAssembly slots; guests start more slowly");
        config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
        Engine::new(&config)
    })
}

fn config(metering: Metering) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .consume_fuel(metering == Metering::Fuel)
        .max_wasm_stack(STACK_BYTES_MAX)
        .wasm_backtrace_max_frames(Some(BACKTRACE_FRAMES_MAX))
        // Only Wasmtime unwinds guest stacks, and it does not need the system's unwind tables.
        .native_unwind_info(false)
        .concurrency_support(false);
    config
}

fn pooling(config: SlotConfig) -> PoolingAllocationConfig {
    let mut pooling = PoolingAllocationConfig::new();
    pooling
        .total_component_instances(config.slots)
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        // Enough for the largest component in every slot: a guest with a slot never fails to get its parts.
        .total_core_instances(config.slots.saturating_mul(CORE_INSTANCES_MAX))
        .total_memories(config.slots.saturating_mul(MEMORIES_MAX))
        .total_tables(config.slots.saturating_mul(TABLES_MAX))
        .max_memories_per_module(MEMORIES_MAX)
        .max_tables_per_module(TABLES_MAX)
        .max_memory_size(usize::try_from(config.memory_bytes_max).unwrap_or(usize::MAX))
        .table_elements(TABLE_ELEMENTS_MAX)
        .linear_memory_keep_resident(RESIDENT_MEMORY_BYTES)
        .table_keep_resident(RESIDENT_TABLE_BYTES)
        // Warm free slots are used before cold ones.
        .max_unused_warm_slots(0);
    pooling
}

/// Identifies version and configuration of an engine.
pub type EngineFingerprint = [u8; 32];

pub fn fingerprint(engine: &Engine) -> EngineFingerprint {
    struct Digest(blake3::Hasher);

    impl Hasher for Digest {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn finish(&self) -> u64 {
            0
        }
    }

    let mut digest = Digest(blake3::Hasher::new());
    engine.precompile_compatibility_hash().hash(&mut digest);
    *digest.0.finalize().as_bytes()
}

/// The engines of both metering modes.
pub(crate) struct GuestEngines {
    slots: SlotConfig,
    unmetered: OnceLock<Result<GuestEngine, PrepareError>>,
    metered: OnceLock<Result<GuestEngine, PrepareError>>,
}

impl GuestEngines {
    pub fn new(slots: SlotConfig) -> Self {
        Self { slots, unmetered: OnceLock::new(), metered: OnceLock::new() }
    }

    /// Creates the engine on first use.
    pub fn get(&self, metering: Metering) -> Result<&GuestEngine, PrepareError> {
        let create =
            || GuestEngine::new(metering, self.slots).map_err(|error| PrepareError::Host { why: format!("{error:#}") });
        self.cell(metering).get_or_init(create).as_ref().map_err(Clone::clone)
    }

    /// Triggers the stop and deadline check of all running guests.
    pub fn tick(&self) {
        for cell in [&self.unmetered, &self.metered] {
            if let Some(Ok(engine)) = cell.get() {
                engine.engine.increment_epoch();
            }
        }
    }

    fn cell(&self, metering: Metering) -> &OnceLock<Result<GuestEngine, PrepareError>> {
        match metering {
            Metering::Off => &self.unmetered,
            Metering::Fuel => &self.metered,
        }
    }
}
