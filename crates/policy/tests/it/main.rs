//! What operators see of a policy: loading, verdicts, nonsense, limits, caching, reloading, cases, documentation.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod caching;
mod cases;
mod common;
mod documentation;
mod hostile;
mod loading;
mod nonsense;
mod output;
mod reloading;
mod samples;
mod verdicts;
