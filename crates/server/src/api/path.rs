//! The variable part of a route, with a refusal like all others.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::{Fault, Refused};

/// Like axum's own, but what is not even text is refused with a problem document.
pub(crate) struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let taken = axum::extract::Path::from_request_parts(parts, state).await;
        let axum::extract::Path(value) = taken.map_err(|error| Refused::saying(Fault::InvalidId, error.to_string()))?;
        Ok(Self(value))
    }
}
