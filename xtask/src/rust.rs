//! Minimal analysis of Rust source without a parser: comments, the first and last line of functions, tests, and the
//! files of modules.

pub mod mask;
pub mod outline;
pub mod tree;
