//! Ctrl-C while something is waited for.

use anyhow::Result;
use tokio::signal;

/// What came first.
pub enum Raced<T> {
    Done(T),
    Interrupted,
}

/// Waits for `work`, but not longer than until Ctrl-C.
pub async fn race<T>(work: impl Future<Output = Result<T>>) -> Result<Raced<T>> {
    tokio::select! {
        result = work => result.map(Raced::Done),
        signal = signal::ctrl_c() => {
            signal?;
            Ok(Raced::Interrupted)
        }
    }
}
