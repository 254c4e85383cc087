//! A plan drawn: as Mermaid text, which many tools render, and as a picture in SVG that needs nothing else.
//!
//! A drawing is bounded however large the plan is; what was left out is said in it. Names are the user's own and are
//! escaped wherever they stand.

mod layers;
mod layout;
mod mermaid;
mod order;
mod picture;
mod place;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use mermaid::mermaid;
pub use svg::svg;

/// How many tasks are drawn; they are the first in the definition.
pub const TASKS_DRAWN_MAX: usize = 2_000;
/// How many needs are drawn.
pub const NEEDS_DRAWN_MAX: usize = 10_000;
