//! Limits across shards, seen from outside: shards that crash, messages that go astray, and what must hold all the same.

mod world;

mod fairness;
mod slots;
mod stories;
mod tokens;
