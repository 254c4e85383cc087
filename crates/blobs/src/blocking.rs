//! Blocking work and tasks that run to completion.

use tokio::task::JoinHandle;

use crate::Error;

/// Runs `work` on a blocking thread. Dropping the caller does not stop the work, so `work` must own everything that
/// needs clean-up.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    join(tokio::task::spawn_blocking(work)).await
}

/// Awaits a task and propagates its panic.
pub(crate) async fn join<T>(task: JoinHandle<Result<T, Error>>) -> Result<T, Error> {
    match task.await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::Stopping),
    }
}
