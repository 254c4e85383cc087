//! What a runner keeps about an attempt in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::time::Millis;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// When the lease of a process runs out. Renewed while the process is set up.
#[derive(Debug, Clone)]
pub(crate) struct SharedLease {
    until: Arc<AtomicU64>,
    duration: Millis,
}

impl SharedLease {
    pub fn new(lease: link::Lease) -> Self {
        Self { until: Arc::new(AtomicU64::new(lease.until.0)), duration: lease.duration }
    }

    pub fn until(&self) -> u64 {
        self.until.load(Ordering::Relaxed)
    }

    pub fn duration(&self) -> Millis {
        self.duration
    }

    pub fn renew(&self, until: Millis) {
        self.until.fetch_max(until.0, Ordering::Relaxed);
    }
}

/// What is needed to stop an attempt.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// Waits for the end of its delay.
    Echo {
        due: Instant,
    },
    /// `stop` is absent once the stop has been sent.
    Process {
        stop: Option<oneshot::Sender<()>>,
        lease: Option<SharedLease>,
    },
    Wasm {
        stop: wasm::Stop,
    },
    /// Ended before this start of the runner. Its end follows at once.
    Ended,
}
