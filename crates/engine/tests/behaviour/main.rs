//! What a shard does, seen from outside: inputs, records, effects. One file for each kind of behaviour.

mod common;

mod adoption;
mod bounded;
mod cancel_and_retract;
mod idempotency;
mod order;
mod placement;
mod policy;
mod queues;
mod rehydration;
mod retention;
mod retries;
mod runner_words;
mod submit;
mod timers;
