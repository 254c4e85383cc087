//! The built-in patterns. Their order is the precedence for overlapping findings.

mod cloud;
mod general;
mod personal;
mod services;

use crate::pattern::Pattern;

/// Pattern of values under a name that indicates a secret. It also enables the check of JSON member names.
pub(crate) const GENERIC_SECRET: &str = "generic_secret";

/// The most specific patterns first.
pub(crate) fn all() -> impl Iterator<Item = &'static Pattern> {
    [cloud::PATTERNS, services::PATTERNS, general::PATTERNS, personal::PATTERNS].into_iter().flatten()
}
