//! A real node over real sockets, one file per kind of behaviour.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod audit;
mod audit_retention;
mod bad_input;
mod blobs;
mod clients;
mod cluster;
mod dead_letters;
mod delays;
mod docs;
mod events;
mod full;
mod governance;
mod http;
mod idempotency;
mod jobs;
mod lists;
mod nodes;
mod operations;
mod outputs;
mod policy_service;
mod policy_service_process;
mod processes;
mod queues;
mod resend;
mod restart;
mod schedules;
mod schema;
mod sessions;
mod shard_restart;
mod start;
mod subscription;
mod support;
mod tenants;
mod workers;
mod workflows;
