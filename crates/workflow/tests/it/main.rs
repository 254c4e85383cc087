//! Workflow definitions, from source text to rendered jobs and diagnostics.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod definitions;
mod docs_and_schema;
mod errors;
mod expressions;
mod inputs;
mod jobs;
mod limits;
mod properties;
mod support;
mod template_errors;
