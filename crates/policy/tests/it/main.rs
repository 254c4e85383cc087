//! Policies as operators use them: loading, verdicts, invalid answers, limits, caching, reloading, cases,
//! documentation.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod caching;
mod cases;
mod documentation;
mod examples;
mod invalid_answers;
mod loading;
mod output;
mod reloading;
mod resource_limits;
mod support;
mod verdicts;
