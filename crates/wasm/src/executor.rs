//! Public interface: prepares components and runs them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use model::blob::BlobId;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::code_cache::CodeCache;
use crate::compiled::Compiled;
use crate::engine::{GuestEngines, SlotConfig};
use crate::error::{Error, PrepareError, SubmitError};
use crate::options::Options;
use crate::pool::{Pool, PoolConfig, Run};
use crate::program::{self, Metering, Program};
use crate::program_cache::ProgramCache;

/// Concurrent compilations; each uses a processor for up to some seconds.
const COMPILATIONS_MAX: usize = 2;

/// Executor of components. Cheap to clone. When the last clone is dropped, queued runs end as stopped and running ones
/// continue.
#[derive(Clone)]
pub struct Executor(Arc<Inner>);

struct Inner {
    component_bytes_max: usize,
    engines: Arc<GuestEngines>,
    cache: CodeCache,
    programs: ProgramCache,
    compilations: Arc<Semaphore>,
    pool: Pool,
}

impl Executor {
    /// Must be called inside a tokio runtime, which provides the guests' timers. Engines and threads are created on
    /// first use.
    pub fn new(options: Options) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let cache = CodeCache::open(&options.cache, options.cache_bytes_max)?;
        let Options { slots, queue_max, memory_bytes_max, .. } = options;
        let engines = Arc::new(GuestEngines::new(SlotConfig { slots: slots.max(1), memory_bytes_max }));
        let pool = Pool::new(engines.clone(), runtime, PoolConfig { slots, queue_max, memory_bytes_max });
        Ok(Self(Arc::new(Inner {
            component_bytes_max: options.component_bytes_max,
            engines,
            cache,
            programs: ProgramCache::new(options.programs_max, options.programs_bytes_max),
            compilations: Arc::new(Semaphore::new(COMPILATIONS_MAX)),
            pool,
        })))
    }

    /// The result of preparing this component, if known. Does not block.
    pub fn prepared(&self, id: BlobId, metering: Metering) -> Option<Result<Arc<Program>, PrepareError>> {
        self.0.programs.get((id, metering))
    }

    /// Prepares a component. `content` is awaited only if the compiled code is neither in memory nor on disk.
    /// Concurrent calls for one component compile it once.
    pub async fn prepare<F>(&self, id: BlobId, metering: Metering, content: F) -> Result<Arc<Program>, PrepareError>
    where
        F: Future<Output = io::Result<Bytes>>,
    {
        let key = (id, metering);
        if let Some(prepared) = self.0.programs.get(key) {
            return prepared;
        }
        let guard = self.0.programs.acquire(key);
        let prepared = guard.cell.get_or_try_init(|| async {
            match self.load_or_compile(id, metering, content).await {
                Err(error) if !error.is_permanent() => Err(error),
                prepared => Ok(prepared.map(Arc::new)),
            }
        });
        prepared.await?.clone()
    }

    async fn load_or_compile<F>(&self, id: BlobId, metering: Metering, content: F) -> Result<Program, PrepareError>
    where
        F: Future<Output = io::Result<Bytes>>,
    {
        let inner = self.0.clone();
        if let Some(program) = blocking(move || inner.load(id, metering)).await? {
            return Ok(program);
        }
        let content = content.await.map_err(|error| PrepareError::Unavailable { why: error.to_string() })?;
        let bytes_max = self.0.component_bytes_max;
        if content.len() > bytes_max {
            return Err(PrepareError::TooLarge { bytes: content.len(), bytes_max });
        }
        // The semaphore is never closed, so this is always a permit.
        let permit = self.0.compilations.clone().acquire_owned().await;
        let inner = self.0.clone();
        blocking(move || {
            // Held until the compilation ends, also if the caller is dropped.
            let _permit = permit;
            inner.compile(id, metering, &content)
        })
        .await
    }

    /// Runs a program as soon as a slot is free. On error nothing runs and the callback is not called.
    pub fn run(&self, run: Run) -> Result<(), SubmitError> {
        self.run_all(vec![run])
    }

    /// [`Executor::run`] for several runs: all are accepted or none. Much cheaper than single calls.
    pub fn run_all(&self, runs: Vec<Run>) -> Result<(), SubmitError> {
        self.0.pool.submit(runs)
    }
}

impl Inner {
    /// Loads a program from the disk cache.
    fn load(&self, id: BlobId, metering: Metering) -> Result<Option<Program>, PrepareError> {
        let engine = self.engines.get(metering)?;
        let compiled = Compiled::load(&self.cache, &engine.engine, &engine.fingerprint, id)?;
        compiled.map(|compiled| program::link(engine, id, metering, &compiled)).transpose()
    }

    fn compile(&self, id: BlobId, metering: Metering, content: &[u8]) -> Result<Program, PrepareError> {
        let engine = self.engines.get(metering)?;
        let compiled = Compiled::new(&engine.engine, id, content)?;
        let program = program::link(engine, id, metering, &compiled)?;
        // Only components that can run are cached.
        compiled.store(&self.cache, &engine.fingerprint, id);
        Ok(program)
    }
}

/// Runs `work` on a blocking thread. A panic in it becomes an error of the node.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PrepareError> + Send + 'static,
) -> Result<T, PrepareError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(PrepareError::Host { why: error.to_string() }))
}
