//! The workflow definition language.
//!
//! A user writes a definition in YAML or JSON. [`compile`] parses and checks it and returns a [`Plan`] for the engine,
//! or diagnostics with their positions. Everything here is a pure function of its arguments.

mod bind;
mod compile;
pub mod cron;
mod delay;
mod diagnostic;
mod expression;
pub mod graph;
mod job;
pub mod limits;
mod node;
mod path;
pub mod plan;
pub mod scope;
mod slice;
mod template;

pub use compile::{Source, compile};
pub use diagnostic::{Diagnostic, Diagnostics, code};
pub use plan::Plan;

/// JSON Schema (2020-12) of the language, for editors.
pub const SCHEMA: &str = include_str!("../../../schemas/workflow.v1.json");
