//! Limits across shards under crashes and lost messages.

mod world;

mod fairness;
mod slots;
mod stories;
mod tokens;
