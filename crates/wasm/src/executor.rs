//! The way in: prepares components and runs them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use model::blob::BlobId;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::cache::{self, Cache};
use crate::engine::{Machines, Room};
use crate::error::{Error, Refused, Rejected};
use crate::options::Options;
use crate::pool::{Pool, Run, Size};
use crate::program::{self, Metering, Program};
use crate::programs::Programs;

/// How many components are compiled at a time; each keeps a processor busy for up to some seconds.
const COMPILATIONS_MAX: usize = 2;

/// Runs components. Cheap to clone; without the last clone it takes no more runs, those that wait end as
/// stopped, and those that run go on to their end.
#[derive(Clone)]
pub struct Executor(Arc<Inner>);

struct Inner {
    component_bytes_max: usize,
    machines: Arc<Machines>,
    cache: Cache,
    programs: Programs,
    compilations: Arc<Semaphore>,
    pool: Pool,
}

impl Executor {
    /// Must be called inside a tokio runtime, whose timers guests wait for. Neither engine nor thread is
    /// made before it is needed.
    pub fn new(options: Options) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let cache = Cache::open(&options.cache, options.cache_bytes_max)?;
        let Options { slots, queue_max, memory_bytes_max, .. } = options;
        let machines = Arc::new(Machines::new(Room { slots: slots.max(1), memory_bytes_max }));
        let pool = Pool::new(machines.clone(), runtime, Size { slots, queue_max, memory_bytes_max });
        Ok(Self(Arc::new(Inner {
            component_bytes_max: options.component_bytes_max,
            machines,
            cache,
            programs: Programs::new(options.programs_max, options.programs_bytes_max),
            compilations: Arc::new(Semaphore::new(COMPILATIONS_MAX)),
            pool,
        })))
    }

    /// What preparing this component came to, if that is known: quick, for any thread.
    pub fn prepared(&self, id: BlobId, metering: Metering) -> Option<Result<Arc<Program>, Refused>> {
        self.0.programs.get((id, metering))
    }

    /// Makes a component ready to run. `content` is asked for its bytes only if neither memory nor disk has
    /// the compiled form. However many ask for the same component at a time, it is compiled once.
    pub async fn prepare<F>(&self, id: BlobId, metering: Metering, content: F) -> Result<Arc<Program>, Refused>
    where
        F: Future<Output = io::Result<Bytes>>,
    {
        let key = (id, metering);
        if let Some(prepared) = self.0.programs.get(key) {
            return prepared;
        }
        let visit = self.0.programs.visit(key);
        let made = visit.place.get_or_try_init(|| async {
            match self.make(id, metering, content).await {
                Err(refused) if !refused.is_final() => Err(refused),
                prepared => Ok(prepared.map(Arc::new)),
            }
        });
        made.await?.clone()
    }

    async fn make<F>(&self, id: BlobId, metering: Metering, content: F) -> Result<Program, Refused>
    where
        F: Future<Output = io::Result<Bytes>>,
    {
        let inner = self.0.clone();
        if let Some(program) = blocking(move || inner.load(id, metering)).await? {
            return Ok(program);
        }
        let content = content.await.map_err(|error| Refused::Unavailable { why: error.to_string() })?;
        let bytes_max = self.0.component_bytes_max;
        if content.len() > bytes_max {
            return Err(Refused::TooLarge { bytes: content.len(), bytes_max });
        }
        // It is never closed: this is a permit.
        let permit = self.0.compilations.clone().acquire_owned().await;
        let inner = self.0.clone();
        blocking(move || {
            // Held until the work is done, even if nobody waits for it any more.
            let _permit = permit;
            inner.compile(id, metering, &content)
        })
        .await
    }

    /// Runs a program as soon as there is a slot. If this fails nothing runs, and nobody is told of an end.
    pub fn run(&self, run: Run) -> Result<(), Rejected> {
        self.run_all(vec![run])
    }

    /// As [`Executor::run`], for many at once: all are taken, or none. Much cheaper than one by one.
    pub fn run_all(&self, runs: Vec<Run>) -> Result<(), Rejected> {
        self.0.pool.submit(runs)
    }
}

impl Inner {
    /// From disk, if it is there and whole.
    fn load(&self, id: BlobId, metering: Metering) -> Result<Option<Program>, Refused> {
        let machine = self.machines.get(metering)?;
        let Some(code) = self.cache.load(cache::Key::new(id, &machine.fingerprint)) else { return Ok(None) };
        program::load(machine, id, metering, &code).map(Some)
    }

    fn compile(&self, id: BlobId, metering: Metering, content: &[u8]) -> Result<Program, Refused> {
        if BlobId::of(content) != id {
            return Err(Refused::Unavailable { why: format!("what was read is not {id}") });
        }
        let machine = self.machines.get(metering)?;
        let code = program::compile(machine, content)?;
        let program = program::load(machine, id, metering, &code)?;
        // Only what can run is worth its place on disk.
        self.cache.store(cache::Key::new(id, &machine.fingerprint), &code);
        Ok(program)
    }
}

/// Work that would hold up an asynchronous thread. A panic in it is the node's failure, not the caller's.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refused> + Send + 'static) -> Result<T, Refused> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Refused::Host { why: error.to_string() }))
}
