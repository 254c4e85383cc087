//! What a shard does, seen from outside: inputs, records, effects. One file for each kind of behaviour.

mod common;

mod adoption;
mod bounded;
mod cancel_and_retract;
mod counts;
mod idempotency;
mod letters;
mod order;
mod outputs;
mod placement;
mod placement_rules;
mod policy;
mod queues;
mod rehydration;
mod retention;
mod retries;
mod runner_words;
mod submit;
mod tenants;
mod timers;
mod unplaced;
mod why;
mod workflows;
