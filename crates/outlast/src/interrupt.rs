//! Ctrl-C during a wait.

use anyhow::Result;
use tokio::signal;

/// A result, or Ctrl-C before it.
pub enum OrInterrupt<T> {
    Done(T),
    Interrupted,
}

/// Waits for `work` until Ctrl-C.
pub async fn or_interrupt<T>(work: impl Future<Output = Result<T>>) -> Result<OrInterrupt<T>> {
    tokio::select! {
        result = work => result.map(OrInterrupt::Done),
        signal = signal::ctrl_c() => {
            signal?;
            Ok(OrInterrupt::Interrupted)
        }
    }
}
