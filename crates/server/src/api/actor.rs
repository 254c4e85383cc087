//! Who asks. Until the server knows its users this is what they say of themselves: it is kept, not believed.

use axum::http::HeaderMap;
use engine::Actor;
use model::spec::name;

use super::problem::Refused;

/// The header in which a client says on whose behalf it asks.
pub(crate) const ACTOR: &str = "outlast-actor";

pub(crate) fn actor(headers: &HeaderMap) -> Result<Actor, Refused> {
    let Some(value) = headers.get(ACTOR) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    name("Outlast-Actor", &text)?;
    Ok(Some(text.into()))
}
