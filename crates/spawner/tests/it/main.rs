//! A real spawner, real sandboxes, real programs that try to get out.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod escape;
mod fixture;
mod life;
mod limits;
mod logs;
mod ordinary;
