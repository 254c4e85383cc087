//! The engines that run guests, one for each way of metering.
//!
//! An engine is made when it is first needed: a node that runs no WebAssembly pays nothing. The memory of
//! its slots is only reserved, and becomes real where guests touch it.

use std::hash::{Hash as _, Hasher};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

use wasmtime::component::Linker;
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::error::Refused;
use crate::guest::Guest;
use crate::program::Metering;
use crate::{CORE_INSTANCES_MAX, MEMORIES_MAX, STACK_BYTES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX, imports};

/// How many frames of a guest's stack a trap's text shows.
const BACKTRACE_FRAMES_MAX: NonZeroUsize = NonZeroUsize::new(20).expect("it is not zero");

/// What a slot keeps of its memory and of each table for the next guest, in bytes: wiping a little memory
/// is cheaper than giving it back to the system and faulting it in again.
const KEEP_MEMORY_BYTES: usize = 64 << 10;
const KEEP_TABLE_BYTES: usize = 4 << 10;

/// What slots are made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub slots: u32,
    pub memory_bytes_max: u64,
}

/// An engine, and all that its guests may call.
pub(crate) struct Machine {
    pub engine: Engine,
    pub linker: Linker<Guest>,
    /// Code compiled by an engine with another fingerprint is of no use to this one.
    pub fingerprint: [u8; 32],
}

impl Machine {
    fn new(metering: Metering, room: Room) -> wasmtime::Result<Self> {
        let mut config = config(metering);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling(room)));
        let engine = Engine::new(&config).or_else(|error| {
            // Where address space is rationed, guests get theirs one by one: slower, and just as limited.
            tracing::warn!(%error, "no address space for WebAssembly slots; guests start more slowly");
            config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
            Engine::new(&config)
        })?;
        let linker = imports::linker(&engine)?;
        let fingerprint = fingerprint(&engine);
        Ok(Self { engine, linker, fingerprint })
    }
}

fn config(metering: Metering) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .consume_fuel(metering == Metering::Fuel)
        .max_wasm_stack(STACK_BYTES_MAX)
        .wasm_backtrace_max_frames(Some(BACKTRACE_FRAMES_MAX))
        // Nothing but this crate unwinds a guest's stack, and it does not need the system's tables.
        .native_unwind_info(false)
        .concurrency_support(false);
    config
}

fn pooling(room: Room) -> PoolingAllocationConfig {
    let mut pooling = PoolingAllocationConfig::new();
    pooling
        .total_component_instances(room.slots)
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        // Enough for every slot to hold the largest component at once: a guest that got a slot gets its parts.
        .total_core_instances(room.slots.saturating_mul(CORE_INSTANCES_MAX))
        .total_memories(room.slots.saturating_mul(MEMORIES_MAX))
        .total_tables(room.slots.saturating_mul(TABLES_MAX))
        .max_memories_per_module(MEMORIES_MAX)
        .max_tables_per_module(TABLES_MAX)
        .max_memory_size(usize::try_from(room.memory_bytes_max).unwrap_or(usize::MAX))
        .table_elements(TABLE_ELEMENTS_MAX)
        .linear_memory_keep_resident(KEEP_MEMORY_BYTES)
        .table_keep_resident(KEEP_TABLE_BYTES)
        // No slot is touched while one that is warm already is free.
        .max_unused_warm_slots(0);
    pooling
}

fn fingerprint(engine: &Engine) -> [u8; 32] {
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

/// Both engines.
pub(crate) struct Machines {
    room: Room,
    plain: OnceLock<Result<Machine, Refused>>,
    fuelled: OnceLock<Result<Machine, Refused>>,
}

impl Machines {
    pub fn new(room: Room) -> Self {
        Self { room, plain: OnceLock::new(), fuelled: OnceLock::new() }
    }

    /// Makes it if it is not there yet.
    pub fn get(&self, metering: Metering) -> Result<&Machine, Refused> {
        let make = || Machine::new(metering, self.room).map_err(|error| Refused::Host { why: format!("{error:#}") });
        self.slot(metering).get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// Has all running guests asked whether they have to end.
    pub fn tick(&self) {
        for machine in [&self.plain, &self.fuelled] {
            if let Some(Ok(machine)) = machine.get() {
                machine.engine.increment_epoch();
            }
        }
    }

    fn slot(&self, metering: Metering) -> &OnceLock<Result<Machine, Refused>> {
        match metering {
            Metering::Off => &self.plain,
            Metering::Fuel => &self.fuelled,
        }
    }
}
