//! Work that goes on by itself: on threads where blocking is allowed, and in tasks that nobody can cut short.

use tokio::task::JoinHandle;

use crate::Error;

/// Runs `work`, which may use files, hash or compress, where it holds up nobody. A caller that stops waiting does not
/// stop the work, so `work` must own whatever has to be cleaned up.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    settled(tokio::task::spawn_blocking(work)).await
}

/// The outcome of a task; a panic in it is one here.
pub(crate) async fn settled<T>(task: JoinHandle<Result<T, Error>>) -> Result<T, Error> {
    match task.await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::Stopping),
    }
}
