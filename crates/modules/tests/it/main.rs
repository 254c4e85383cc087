//! Tests of the module host with real components, made from core modules in text form.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod guests;
mod invocations;
mod limits;
mod refusals;
mod support;
