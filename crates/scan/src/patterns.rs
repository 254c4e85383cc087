//! All patterns there are. The order matters where findings overlap: the first one gives its name.

mod cloud;
mod general;
mod personal;
mod services;

use crate::pattern::Pattern;

/// The pattern of values under a name that says they are secret. The names of JSON members count as well.
pub(crate) const GENERIC_SECRET: &str = "generic_secret";

/// The most telling ones first.
pub(crate) fn all() -> impl Iterator<Item = &'static Pattern> {
    [cloud::PATTERNS, services::PATTERNS, general::PATTERNS, personal::PATTERNS].into_iter().flatten()
}
