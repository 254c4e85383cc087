//! As much understanding of Rust source as the chores need, without a parser: where comments are, where functions
//! begin and end, which of them are tests, and which files belong to which module.

pub mod mask;
pub mod outline;
pub mod tree;
