//! Work that blocks, away from the threads that answer requests.

use super::problem::Refused;
use crate::error::Error;

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Panicked(error.to_string()))?
}
