//! Behaviour of a shard by its inputs, records and effects. One file per topic.

mod support;

mod adoption;
mod audit_retention;
mod bounded;
mod cancel_and_retract;
mod claims;
mod counts;
mod dead_letters;
mod exclusive;
mod expiry;
mod failing_nodes;
mod failover;
mod idempotency;
mod largest_inputs;
mod nodes;
mod order;
mod outputs;
mod placement;
mod placement_rules;
mod policy;
mod queues;
mod rehydration;
mod retention;
mod retries;
mod runner_messages;
mod submit;
mod tenants;
mod timers;
mod unplaced;
mod why;
mod workflows;
