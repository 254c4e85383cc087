//! Definitions from their text to what they render.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod any_text;
mod conditions_and_values;
mod definitions;
mod documents;
mod fixture;
mod jobs;
mod limits;
mod mistakes;
mod mistakes_in_templates;
mod starting;
