//! The caller of a request. Until the server authenticates users, it is the name they give: recorded, not verified.

use axum::http::HeaderMap;
use engine::Actor;
use model::spec::name;

use super::problem::Refused;

/// Header with the name of the caller.
pub(crate) const ACTOR: &str = "outlast-actor";

pub(crate) fn actor(headers: &HeaderMap) -> Result<Actor, Refused> {
    let Some(value) = headers.get(ACTOR) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    name("Outlast-Actor", &text)?;
    Ok(Some(text.into()))
}
