//! A real spawner, real sandboxes, real programs that try to get out.

mod escape;
mod fixture;
mod life;
mod limits;
mod logs;
