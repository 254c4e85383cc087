//! Path parameters.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::{ProblemKind, Refused};

/// Like axum's `Path`, but errors are problem documents.
pub(crate) struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let taken = axum::extract::Path::from_request_parts(parts, state).await;
        let axum::extract::Path(value) =
            taken.map_err(|error| Refused::detailed(ProblemKind::InvalidId, error.to_string()))?;
        Ok(Self(value))
    }
}
