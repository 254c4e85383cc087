//! What a runner keeps about an attempt in flight.

use tokio::sync::oneshot;
use tokio::time::Instant;

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
    },
    Wasm {
        stop: wasm::Stop,
    },
    /// Ended before this start of the runner. Its end follows at once.
    Ended,
}
