//! The one place where the server reads the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use model::time::Millis;

pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
