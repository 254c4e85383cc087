//! Draws a plan, as Mermaid text or as a self-contained SVG.
//!
//! The size of a drawing is bounded; it states what it omits of a large plan. Names come from users and are always
//! escaped.

mod heights;
mod layers;
mod layout;
mod mermaid;
mod order;
mod picture;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use mermaid::mermaid;
pub use svg::svg;

/// Maximum number of drawn tasks, the first of the definition.
pub const TASKS_DRAWN_MAX: usize = 2_000;
/// Maximum number of drawn needs.
pub const NEEDS_DRAWN_MAX: usize = 10_000;
